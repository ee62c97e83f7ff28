//go:build !unix

package launch

import (
	"context"
	"errors"
	"os"
)

// Run fails: without process groups and signals, it could leave processes behind.
func Run(context.Context, Config) error {
	return errors.New("local ranks need a Unix system: start each rank yourself, " +
		"with RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT and ALLCAST_KEY set")
}

// Notify returns no signals, as Run has no ranks to forward them to.
func Notify() (signals <-chan os.Signal, stop func()) { return nil, func() {} }

// Adopt does nothing, as Run starts no processes.
func Adopt() (end func()) { return func() {} }
