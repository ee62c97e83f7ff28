package bpf

import (
	"errors"
	"net"

	"github.com/allcast/allcast/internal/fabric"
)

// Hook is the place where the program sees packets.
type Hook string

// Hooks.
const (
	SockFilter Hook = "sockfilter"
	TCX        Hook = "tcx"
	XDP        Hook = "xdp"
)

// Hooks lists all hooks, the default first. settings.Hooks has the same names.
var Hooks = []Hook{SockFilter, TCX, XDP}

// ErrUnavailable marks errors of a kernel or of privileges that do not allow the datapath.
var ErrUnavailable = errors.New("the bpf datapath is not available")

// Config is what New needs.
type Config struct {
	Hook      Hook
	Interface *net.Interface // receives the packets
	Chunk     int            // maximum bytes per chunk
	Fault     Fault
	Poller    fabric.FDPoller // for Watch
	Complain  func(error)     // called once with the reason why buffers are not written directly; may be nil
}

// Fault is the shares of datagrams, from 0 to 1, that the program loses, takes twice or leaves
// to the process. With a share above 0, New loads the object that can inject faults.
type Fault struct {
	Drop, Dup, Reorder float64
	Seed               uint64
}

func (f Fault) any() bool { return f.Drop > 0 || f.Dup > 0 || f.Reorder > 0 }
