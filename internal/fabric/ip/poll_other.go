//go:build !linux

package ip

import (
	"errors"

	"github.com/allcast/allcast/internal/fabric"
)

// Poller does not exist here: Go's own poller does the work.
type Poller struct {
	fabric.Poller
	fabric.FDPoller
}

type pollSource struct{}

// NewPoller fails.
func NewPoller() (*Poller, error) { return nil, errors.ErrUnsupported }
