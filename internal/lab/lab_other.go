//go:build !linux

package lab

import (
	"context"
	"fmt"
	"io"
)

// errOther says why nothing here works.
var errOther = fmt.Errorf("%w: Linux only, it is made of the kernel's network namespaces", ErrUnable)

// Lab is a network that is up; here, there never is one.
type Lab struct{ Plan *Plan }

// Options say how a lab is brought up.
type Options struct {
	Self []string
	Stay bool
	Log  func(format string, args ...any)
}

// Job is a command to run as one rank a host.
type Job struct {
	Command        []string
	Self           []string
	Stdout, Stderr io.Writer
	Log            func(format string, args ...any)
}

// Check checks nothing.
func (*Job) Check() error { return nil }

// Up cannot.
func Up(_ context.Context, cfg Config, _ Options) (*Lab, error) {
	if _, err := NewPlan(cfg); err != nil {
		return nil, err
	}
	return nil, errOther
}

// Attach cannot.
func Attach(string) (*Lab, error) { return nil, errOther }

// Down cannot.
func Down(string) (bool, error) { return false, errOther }

// Hold cannot.
func Hold(string, io.Reader, io.WriteCloser) error { return errOther }

// Enter cannot.
func Enter(string, string, []string) error { return errOther }

// Down cannot.
func (*Lab) Down() error { return errOther }

// Release cannot.
func (*Lab) Release() error { return errOther }

// Run cannot.
func (*Lab) Run(context.Context, Job) (*Counters, error) { return nil, errOther }

// Counters cannot.
func (*Lab) Counters() (*Counters, error) { return nil, errOther }

// Exec cannot.
func (*Lab) Exec(string, []string) error { return errOther }

// SetLink cannot.
func (*Lab) SetLink(string, string, bool) error { return errOther }
