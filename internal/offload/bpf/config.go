package bpf

import (
	"net"

	"github.com/allcast/allcast/internal/fabric"
)

// Config of an Offload.
type Config struct {
	Hook      Hook
	Interface *net.Interface // where packets arrive
	Chunk     int            // maximum size in bytes
	Fault     Fault
	Poller    fabric.FDPoller // for Watch
	Complain  func(error)     // called once with the reason why buffers are not written directly; may be nil
}

// Fault is what goes wrong on purpose, for tests: shares of 1.
type Fault struct {
	Drop, Dup, Reorder float64
	Seed               uint64
}
