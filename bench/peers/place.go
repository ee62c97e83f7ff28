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

// place is where everything is measured: a lab, and a directory with programs.
type place struct {
	lab     *lab.Lab
	ranks   int
	self    string // this program
	dir     string
	allcast string
	agent   string // what MPI's launchers take for ssh
}

// settle is how long a new link takes at most until the kernel says that it runs. UCX
// asks.
const settle = 2 * time.Second

// newPlace builds programs and lab.
func newPlace(ctx context.Context, cfg *config) (*place, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	// Daemons of launchers that were killed become our children, to be buried by us.
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return nil, fmt.Errorf("prctl: %w", err)
	}
	p := &place{self: self}
	if p.dir, err = os.MkdirTemp("", "peers-"); err != nil {
		return nil, err
	}
	p.allcast = filepath.Join(p.dir, "allcast")
	if err := p.build(ctx, cfg); err != nil {
		return nil, errors.Join(err, p.close())
	}
	return p, nil
}

func (p *place) build(ctx context.Context, cfg *config) error {
	if err := compile(ctx, "go", "build", "-o", p.allcast, "./cmd/allcast"); err != nil {
		return err
	}
	l, err := lab.Up(ctx, lab.Config{
		Name: cfg.name, Topology: cfg.topology, MTU: lab.DefaultMTU, Queue: lab.DefaultQueue, Groups: lab.DefaultGroups,
	}, lab.Options{Self: []string{p.allcast, "lab"}})
	if err != nil {
		return err
	}
	p.lab, p.ranks = l, l.Plan.Graph.Hosts
	if err := p.writeAgent(); err != nil {
		return err
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(settle):
		return nil
	}
}

// close takes everything down, with whatever still runs in the lab.
func (p *place) close() error {
	var err error
	if p.lab != nil {
		err = p.lab.Down()
	}
	for {
		if pid, err := unix.Wait4(-1, nil, unix.WNOHANG, nil); pid <= 0 && !errors.Is(err, unix.EINTR) {
			break
		}
	}
	return errors.Join(err, os.RemoveAll(p.dir))
}

// writeAgent makes what looks like ssh to a launcher, and the names of the hosts.
func (p *place) writeAgent() error {
	hosts := filepath.Join(p.dir, "hosts")
	text := "127.0.0.1 localhost\n"
	for h := range p.ranks {
		text += fmt.Sprintf("%v host%d\n", p.lab.Plan.HostAddr(h), h)
	}
	if err := os.WriteFile(hosts, []byte(text), 0o644); err != nil {
		return err
	}
	p.agent = filepath.Join(p.dir, "agent")
	script := fmt.Sprintf("#!/bin/sh\nexec '%s' rsh '%s' '%s' \"$@\"\n", p.self, p.lab.Plan.Config.Name, hosts)
	return os.WriteFile(p.agent, []byte(script), 0o755)
}

func (p *place) hosts() string {
	names := make([]string, p.ranks)
	for h := range names {
		names[h] = fmt.Sprintf("host%d", h)
	}
	return strings.Join(names, ",")
}

// command is one that is not hit by our terminal's Ctrl-C and that does not survive ctx.
func command(ctx context.Context, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Second
	return cmd
}

// compile runs a compiler, which says by itself what is wrong.
func compile(ctx context.Context, name string, args ...string) error {
	out, err := command(ctx, name, args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w: %s", name, err, bytes.TrimSpace(out))
	}
	return nil
}
