//go:build linux

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
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/allcast/allcast/internal/lab"
)

// testbed is a lab and a directory with programs. All contestants run there.
type testbed struct {
	lab     *lab.Lab
	ranks   int
	self    string // this program
	dir     string
	allcast string
	agent   string // stand-in for ssh, for MPI's launchers
}

// settle bounds the time until the kernel reports a new link as running, which UCX checks.
const settle = 2 * time.Second

// newTestbed builds the programs and the lab.
func newTestbed(ctx context.Context, cfg *config) (*testbed, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	// Daemons of killed launchers become children of this process, and close reaps them.
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return nil, fmt.Errorf("prctl: %w", err)
	}
	bed := &testbed{self: self}
	if bed.dir, err = os.MkdirTemp("", "peers-"); err != nil {
		return nil, err
	}
	bed.allcast = filepath.Join(bed.dir, "allcast")
	if err := bed.build(ctx, cfg); err != nil {
		return nil, errors.Join(err, bed.close())
	}
	return bed, nil
}

func (bed *testbed) build(ctx context.Context, cfg *config) error {
	if err := compile(ctx, "go", "build", "-o", bed.allcast, "./cmd/allcast"); err != nil {
		return err
	}
	l, err := lab.Up(ctx, lab.Config{
		Name: cfg.name, Topology: cfg.topology, MTU: lab.DefaultMTU, Queue: lab.DefaultQueue, Groups: lab.DefaultGroups,
	}, lab.Options{Self: []string{bed.allcast, "lab"}})
	if err != nil {
		return err
	}
	bed.lab, bed.ranks = l, l.Plan.Graph.Hosts
	if err := bed.writeAgent(); err != nil {
		return err
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(settle):
		return nil
	}
}

// close removes the lab, with all processes in it, and the directory.
func (bed *testbed) close() error {
	var err error
	if bed.lab != nil {
		err = bed.lab.Down()
	}
	for {
		if pid, err := unix.Wait4(-1, nil, unix.WNOHANG, nil); pid <= 0 && !errors.Is(err, unix.EINTR) {
			break
		}
	}
	return errors.Join(err, os.RemoveAll(bed.dir))
}

// writeAgent writes the stand-in for ssh, and the file with the names of the hosts.
func (bed *testbed) writeAgent() error {
	hosts := filepath.Join(bed.dir, "hosts")
	text := "127.0.0.1 localhost\n"
	for h := range bed.ranks {
		text += fmt.Sprintf("%v host%d\n", bed.lab.Plan.HostAddr(h), h)
	}
	if err := os.WriteFile(hosts, []byte(text), 0o644); err != nil {
		return err
	}
	bed.agent = filepath.Join(bed.dir, "agent")
	script := fmt.Sprintf("#!/bin/sh\nexec '%s' rsh '%s' '%s' \"$@\"\n", bed.self, bed.lab.Plan.Config.Name, hosts)
	return os.WriteFile(bed.agent, []byte(script), 0o755)
}

// hosts lists the hosts that run an operation.
func (bed *testbed) hosts(op string) string {
	names := make([]string, bed.ranksOf(op))
	for h := range names {
		names[h] = fmt.Sprintf("host%d", h)
	}
	return strings.Join(names, ",")
}

// exec returns a command that runs on a host of the lab.
func (bed *testbed) exec(ctx context.Context, host int, args ...string) *exec.Cmd {
	in := []string{"lab", "exec", "--name", bed.lab.Plan.Config.Name, fmt.Sprintf("host%d", host), "--"}
	return command(ctx, bed.allcast, append(in, args...)...)
}

// command returns a command in a process group of its own, which the terminal's Ctrl-C does not
// reach. The group is killed when ctx ends.
func command(ctx context.Context, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Second
	return cmd
}

// compile runs a compiler; its error contains the compiler's output.
func compile(ctx context.Context, name string, args ...string) error {
	out, err := command(ctx, name, args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w: %s", name, err, bytes.TrimSpace(out))
	}
	return nil
}
