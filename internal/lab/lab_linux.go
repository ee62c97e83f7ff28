package lab

import (
	"context"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Lab is a network that is up.
type Lab struct {
	Plan *Plan

	state  state
	lock   *os.File // nil if another process owns the lab
	holder *holder
}

// Up builds a lab. If Up fails or ctx ends first, nothing is left behind.
func Up(ctx context.Context, cfg Config, opt Options) (*Lab, error) {
	plan, err := NewPlan(cfg)
	if err != nil {
		return nil, err
	}
	if err := checkPrivileges(); err != nil {
		return nil, err
	}
	if opt.Log == nil {
		opt.Log = func(string, ...any) {}
	}
	l := &Lab{Plan: plan}
	if l.lock, err = lock(plan.Config.Name); err != nil {
		return nil, lockedError(plan.Config.Name, err)
	}
	if err := l.up(ctx, opt); err != nil {
		return nil, errors.Join(err, l.Down())
	}
	return l, nil
}

func (l *Lab) up(ctx context.Context, opt Options) error {
	name := l.Plan.Config.Name
	// This process holds the lock, so anything with that name is a leftover.
	if found, err := wipe(name); err != nil {
		return err
	} else if found {
		opt.Log("took down what was left of an earlier lab")
	}
	self, err := findProcess(os.Getpid())
	if err != nil {
		return err
	}
	l.state = state{Config: l.Plan.Config, Owner: self, Aggregator: opt.Aggregator}
	if err := l.state.write(); err != nil {
		return err
	}
	if len(l.Plan.Aggregators) > 0 {
		if err := writeSiteKey(name); err != nil {
			return err
		}
	}
	if err := build(ctx, l.Plan, opt.Progress); err != nil {
		return err
	}
	if l.holder, err = startHolder(ctx, name, opt.Self, l.lock); err != nil {
		return err
	}
	l.state.Holder, l.state.Aggregators = l.holder.process, l.holder.aggregators
	if opt.Stay {
		l.state.Owner = process{}
	}
	if err := l.state.write(); err != nil {
		return err
	}
	if opt.Stay {
		return l.holder.stay()
	}
	return ctx.Err()
}

// Release detaches from a lab that stays up.
func (l *Lab) Release() error { return l.lock.Close() }

// Down removes the lab and kills all processes in it.
func (l *Lab) Down() error {
	l.holder.stop()
	_, err := wipe(l.Plan.Config.Name)
	return errors.Join(err, unlock(l.lock))
}

// Attach attaches to a lab that is up.
func Attach(name string) (*Lab, error) {
	if err := checkPrivileges(); err != nil {
		return nil, err
	}
	s, plan, err := readPlan(name)
	if err != nil {
		return nil, err
	}
	if !s.Holder.alive() {
		if s.Owner.alive() {
			return nil, errors.New("the lab is not up yet")
		}
		return nil, errors.New("the lab has lost the process that keeps its multicast routes: " +
			"take it down with \"allcast lab down\"")
	}
	return &Lab{Plan: plan, state: *s}, nil
}

// checkPrivileges checks the privileges that a lab needs, by creating a namespace.
func checkPrivileges() error {
	if os.Geteuid() != 0 {
		return fmt.Errorf("%w: it needs root, to make network namespaces and routes: try sudo", ErrUnable)
	}
	err := onThread(func() error { return unix.Unshare(unix.CLONE_NEWNET) })
	if err != nil {
		return fmt.Errorf("%w: no network namespace can be made (%w): "+
			"in a container, it needs CAP_SYS_ADMIN and CAP_NET_ADMIN (docker run --privileged)", ErrUnable, err)
	}
	return nil
}

func lockedError(name string, err error) error {
	s, readErr := readState(name)
	if !errors.Is(err, errLocked) || readErr != nil {
		return fmt.Errorf("%w (%s)", err, lockPath(name))
	}
	if s.Owner.alive() {
		return fmt.Errorf("%w: %s, of process %d; wait for it, end it with \"allcast lab down\", or choose another --name",
			err, s.Config.Topology, s.Owner.PID)
	}
	return fmt.Errorf("%w: %s; end it with \"allcast lab down\", or choose another --name", err, s.Config.Topology)
}

// annotate adds what failed to an error, and returns nil if there is none.
func annotate(err error, format string, args ...any) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf(format+": %w", append(args, err)...)
}
