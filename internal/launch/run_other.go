//go:build !unix

package launch

import (
	"context"
	"errors"
	"io"
	"os"
)

var errUnix = errors.New("local ranks need a Unix system: start each rank yourself, " +
	"with RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT and ALLCAST_KEY set")

// Run fails: without process groups and signals, it could leave processes behind.
func Run(context.Context, Config) error { return errUnix }

// Hosts describes the machines of RunHosts.
type Hosts struct {
	List       []Host
	SSH, Agent []string
}

// A HostError is a failure of a machine or of the connection to it.
type HostError struct {
	Host string
	Err  error
}

func (e *HostError) Error() string { return "host " + e.Host + ": " + e.Err.Error() }

// RunHosts fails as Run does.
func RunHosts(context.Context, Config, Hosts) error { return errUnix }

// Agent fails as Run does.
func Agent(io.Reader, io.Writer) error { return errUnix }

// Notify returns no signals, as Run has no ranks to forward them to.
func Notify() (signals <-chan os.Signal, stop func()) { return nil, func() {} }

// Adopt does nothing, as Run starts no processes.
func Adopt() (end func()) { return func() {} }
