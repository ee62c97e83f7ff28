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

// testbed is a directory with programs, and a lab in which all contestants run.
type testbed struct {
	lab     *lab.Lab
	ranks   int
	self    string // this program
	dir     string
	allcast string
	agent   string // stand-in for ssh, for MPI's launchers
}

// settleTime bounds the time until the kernel reports a new link as running.
const settleTime = 2 * time.Second

// newTestbed builds the programs. There is no lab yet.
func newTestbed(ctx context.Context) (*testbed, error) {
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
	if err := compile(ctx, "go", "build", "-o", bed.allcast, "./cmd/allcast"); err != nil {
		return nil, errors.Join(err, bed.close())
	}
	return bed, nil
}

// up builds the lab.
func (bed *testbed) up(ctx context.Context, network lab.Config) error {
	l, err := lab.Up(ctx, network, lab.Options{
		Self: []string{bed.allcast, "lab"}, Aggregator: []string{bed.allcast, "aggregator"},
	})
	if err != nil {
		return err
	}
	bed.lab, bed.ranks = l, l.Plan.Graph.Hosts
	return bed.writeAgent()
}

// settle waits until the kernel reports the links as running, which UCX checks.
func settle(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(settleTime):
		return nil
	}
}

// down removes the lab, with all processes in it.
func (bed *testbed) down() error {
	var err error
	if bed.lab != nil {
		err = bed.lab.Down()
		bed.lab = nil
	}
	for {
		if pid, err := unix.Wait4(-1, nil, unix.WNOHANG, nil); pid <= 0 && !errors.Is(err, unix.EINTR) {
			break
		}
	}
	return err
}

// close removes the lab and the directory.
func (bed *testbed) close() error { return errors.Join(bed.down(), os.RemoveAll(bed.dir)) }

// host returns the name of a rank's host.
func (bed *testbed) host(rank int) string { return bed.lab.Plan.Nodes[rank].Name }

// writeAgent writes the stand-in for ssh, and the file with the names of the hosts.
func (bed *testbed) writeAgent() error {
	hosts := filepath.Join(bed.dir, "hosts")
	text := "127.0.0.1 localhost\n"
	for h := range bed.ranks {
		text += fmt.Sprintf("%v %s\n", bed.lab.Plan.HostAddr(h), bed.host(h))
	}
	if err := os.WriteFile(hosts, []byte(text), 0o644); err != nil {
		return err
	}
	bed.agent = filepath.Join(bed.dir, "agent")
	script := fmt.Sprintf("#!/bin/sh\nexec '%s' rsh '%s' '%s' \"$@\"\n", bed.self, bed.lab.Plan.Config.Name, hosts)
	return os.WriteFile(bed.agent, []byte(script), 0o755)
}

// hosts lists the hosts that run an operation, in the order of their ranks.
func (bed *testbed) hosts(op string) string {
	names := make([]string, bed.ranksOf(op))
	for h := range names {
		names[h] = bed.host(h)
	}
	return strings.Join(names, ",")
}

// exec returns a command that runs on the host of a rank.
func (bed *testbed) exec(ctx context.Context, rank int, args ...string) *exec.Cmd {
	in := []string{"lab", "exec", "--name", bed.lab.Plan.Config.Name, bed.host(rank), "--"}
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
