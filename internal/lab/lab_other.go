//go:build !linux

package lab

import (
	"context"
	"fmt"
	"io"
	"syscall"
)

// errOther is the error of all functions on systems other than Linux. Up still validates the configuration.
var errOther = fmt.Errorf("%w: Linux only, it is made of the kernel's network namespaces", ErrUnable)

// Lab is a network that is up. It does not exist on this system.
type Lab struct{ Plan *Plan }

func Up(_ context.Context, cfg Config, _ Options) (*Lab, error) {
	if _, err := NewPlan(cfg); err != nil {
		return nil, err
	}
	return nil, errOther
}

func Attach(string) (*Lab, error)                        { return nil, errOther }
func Down(string) (bool, error)                          { return false, errOther }
func Hold(string, io.Reader, io.WriteCloser) error       { return errOther }
func Enter(string, []string) error                       { return errOther }
func (*Lab) Down() error                                 { return errOther }
func (*Lab) Release() error                              { return errOther }
func (*Lab) Run(context.Context, Job) (*Counters, error) { return nil, errOther }
func (*Lab) Counters() (*Counters, error)                { return nil, errOther }
func (*Lab) Exec(string, []string) error                 { return errOther }
func (*Lab) SetLink(string, string, bool) error          { return errOther }
func (*Lab) AggregatorPID(string) (int, error)           { return 0, errOther }
func (*Lab) SignalAggregator(string, syscall.Signal) error {
	return errOther
}
func (*Lab) RestartAggregator(context.Context, string) error { return errOther }
