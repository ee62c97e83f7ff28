//go:build !linux

package ip

import (
	"errors"

	"github.com/allcast/allcast/internal/fabric"
)

// Poller is not there: Go's own does it.
type Poller struct {
	fabric.Poller
	fabric.FDPoller
}

type pollSource struct{}

// NewPoller says that there is none.
func NewPoller() (*Poller, error) { return nil, errors.ErrUnsupported }
