//go:build !linux

package lab

import (
	"context"
	"fmt"
	"io"
)

// errOther is the error of all functions on systems other than Linux.
var errOther = fmt.Errorf("%w: Linux only, it is made of the kernel's network namespaces", ErrUnable)

// Lab is a network that is up. It does not exist on this system.
type Lab struct{ Plan *Plan }

// Up checks the configuration and fails.
func Up(_ context.Context, cfg Config, _ Options) (*Lab, error) {
	if _, err := NewPlan(cfg); err != nil {
		return nil, err
	}
	return nil, errOther
}

// Attach fails.
func Attach(string) (*Lab, error) { return nil, errOther }

// Down fails.
func Down(string) (bool, error) { return false, errOther }

// Hold fails.
func Hold(string, io.Reader, io.WriteCloser) error { return errOther }

// Enter fails.
func Enter(string, []string) error { return errOther }

// Down fails.
func (*Lab) Down() error { return errOther }

// Release fails.
func (*Lab) Release() error { return errOther }

// Run fails.
func (*Lab) Run(context.Context, Job) (*Counters, error) { return nil, errOther }

// Counters fails.
func (*Lab) Counters() (*Counters, error) { return nil, errOther }

// Exec fails.
func (*Lab) Exec(string, []string) error { return errOther }

// SetLink fails.
func (*Lab) SetLink(string, string, bool) error { return errOther }
