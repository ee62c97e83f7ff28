//go:build !linux

package bpf

import (
	"errors"
	"net/netip"
	"sync/atomic"

	"github.com/allcast/allcast/internal/fabric"
)

// Offload does not exist here.
type Offload struct {
	fabric.Placer
	fabric.Allocator
}

// New fails.
func New(Config) (*Offload, error) {
	return nil, errors.Join(ErrUnavailable, errors.New("it needs Linux: use the host datapath"))
}

// Share does nothing.
func (o *Offload) Share() {}

// Long does nothing.
func (o *Offload) Long(int) {}

// Forget does nothing.
func (o *Offload) Forget() {}

// Filter fails.
func (o *Offload) Filter(int, netip.AddrPort, netip.AddrPort) (*atomic.Uint64, error) {
	return nil, ErrUnavailable
}
