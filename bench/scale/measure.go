//go:build linux

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// maxRun bounds the time of a command.
const maxRun = 20 * time.Minute

// programs are the programs of a row's commands, built on demand.
type programs struct{ dir string }

func run(ctx context.Context, cfg *config) error {
	dir, err := os.MkdirTemp("", "allcast-scale-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	p := &programs{dir}
	began := time.Now()
	var failed []string
	for _, r := range cfg.rows {
		if err := p.row(ctx, cfg, r); err != nil {
			log.Printf("%s: %v", r.name, err)
			failed = append(failed, r.name)
		}
		if ctx.Err() != nil {
			return errors.New("interrupted")
		}
	}
	log.Printf("measured in %v", time.Since(began).Round(time.Second))
	if len(failed) > 0 {
		return fmt.Errorf("rows that failed: %s", strings.Join(failed, ", "))
	}
	return nil
}

// row measures and reports a row.
func (p *programs) row(ctx context.Context, cfg *config, r *row) error {
	res := newResult(r)
	if err := r.missing(); err != nil {
		res.Skipped = err.Error()
	} else {
		rounds := cfg.rounds
		if r.rounds > 0 {
			rounds = r.rounds
		}
		began := time.Now()
		got, err := p.measure(ctx, r, rounds)
		if err != nil {
			return err
		}
		res.Seconds = time.Since(began).Seconds()
		if err := res.compare(r, got); err != nil {
			return err
		}
	}
	if err := res.print(os.Stdout, cfg.json); err != nil || cfg.page == "" {
		return err
	}
	return replaceRow(cfg.page, res.Row, res.markdown())
}

// measure returns the values of each round.
func (p *programs) measure(ctx context.Context, r *row, rounds int) ([]values, error) {
	got := make([]values, rounds)
	for round := range rounds {
		got[round] = maps.Clone(r.given)
		if got[round] == nil {
			got[round] = make(values)
		}
		for k := range r.runs {
			i := (round + k) % len(r.runs) // no run always follows the same other run
			v, err := p.run(ctx, &r.runs[i])
			if err != nil {
				return nil, err
			}
			maps.Copy(got[round], v)
			log.Printf("%s, round %d of %d: %v", r.name, round+1, rounds, v)
		}
		if r.derive != nil {
			r.derive(got[round])
		}
	}
	return got, nil
}

// run executes a command and reads its output.
func (p *programs) run(ctx context.Context, c *measurement) (values, error) {
	args, err := p.args(ctx, c)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, maxRun)
	defer cancel()
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) } // an interrupted command removes its lab
	cmd.WaitDelay = 20 * time.Second
	var out, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &stderr
	began := time.Now()
	err = cmd.Run()
	if judged := c.judges && cmd.ProcessState.ExitCode() == 1; err != nil && !judged {
		return nil, fmt.Errorf("%s: %w: %s", c.line, err, bytes.TrimSpace(stderr.Bytes()))
	}
	read := c.read
	if read == nil {
		read = readPerf
	}
	v, err := read(c.name, output{out.Bytes(), time.Since(began), peakMemory(cmd.ProcessState)})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", c.line, err)
	}
	return v, nil
}

// args returns a command line that runs built programs.
func (p *programs) args(ctx context.Context, c *measurement) ([]string, error) {
	pkg, rest := "./cmd/allcast", strings.TrimPrefix(c.line, "allcast")
	if tool, ok := strings.CutPrefix(c.line, "go run "); ok {
		pkg, rest, _ = strings.Cut(tool, " ")
	}
	name := filepath.Join(p.dir, path.Base(pkg))
	if _, err := os.Stat(name); err != nil {
		build := exec.CommandContext(ctx, "go", "build", "-o", name, pkg)
		build.Stderr = os.Stderr
		if err := build.Run(); err != nil {
			return nil, fmt.Errorf("build %s (run this command in the repository's root): %w", pkg, err)
		}
	}
	return append([]string{name}, strings.Fields(rest)...), nil
}

// peakMemory returns the peak resident memory of a process, in bytes.
func peakMemory(s *os.ProcessState) int64 {
	if u, ok := s.SysUsage().(*syscall.Rusage); ok {
		return u.Maxrss << 10
	}
	return 0
}
