package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// output runs a command and returns what it prints to stdout.
func (g *gate) output(args ...string) (string, error) {
	cmd := exec.CommandContext(g.ctx, args[0], args[1:]...)
	cmd.Env = g.env
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s: %w\n%s", strings.Join(args, " "), err, stderr.String())
	}
	return string(out), nil
}

// commands returns the body of a stage that runs shell command lines one after the other, with a log.
func (g *gate) commands(name string, lines ...string) func(context.Context) (string, error) {
	return func(ctx context.Context) (string, error) {
		path := filepath.Join(g.logs, strings.ReplaceAll(name, " ", "-")+".log")
		log, err := os.Create(path)
		if err != nil {
			return "", err
		}
		defer func() { _ = log.Close() }()
		ctx, cancel := context.WithTimeout(ctx, g.limit())
		defer cancel()
		for _, line := range lines {
			_, _ = fmt.Fprintln(log, "+", line)
			cmd := exec.CommandContext(ctx, "bash", "-euo", "pipefail", "-c", line)
			cmd.Env, cmd.Stdout, cmd.Stderr = g.env, log, log
			prepare(cmd)
			if err := cmd.Run(); err != nil {
				text, _ := os.ReadFile(path)
				if ctx.Err() != nil {
					err = fmt.Errorf("%w: %w", ctx.Err(), err)
				}
				return "", fmt.Errorf("%s: %w\n%s\nlog: %s", line, err, text, path)
			}
		}
		return "", nil
	}
}

// limit is the time after which a stage of command lines counts as hung.
func (g *gate) limit() time.Duration {
	if g.soaking {
		return 4 * time.Hour
	}
	return 30 * time.Minute
}

// prepare makes the end of a context end the command with all processes it started, and no orphan keep it waiting.
func prepare(cmd *exec.Cmd) {
	group(cmd)
	cmd.WaitDelay = 10 * time.Second
}

// program reports whether a program is missing.
func program(names ...string) func(context.Context) string {
	return func(context.Context) string {
		for _, name := range names {
			if _, err := exec.LookPath(name); err != nil {
				return name + " is not installed"
			}
		}
		return ""
	}
}

// installed reports why a command that installs something, such as from PyPI, failed.
func (g *gate) installed(name, line string) func(context.Context) string {
	run := g.commands(name, line)
	return func(ctx context.Context) string {
		if _, err := run(ctx); err != nil {
			lines := strings.Split(strings.TrimSpace(err.Error()), "\n")
			return "its tools could not be installed: " + lines[max(0, len(lines)-2)]
		}
		return ""
	}
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return !errors.Is(err, os.ErrNotExist)
}

func touch(path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, nil, 0o644)
}
