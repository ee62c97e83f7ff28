// Package engine runs a rank of a job over a real network. It is a facade: package control runs the node
// and the calls, package datapath moves the bytes, and package observer answers questions about both.
package engine

import (
	"github.com/allcast/allcast/internal/engine/control"
	"github.com/allcast/allcast/internal/engine/datapath"
	"github.com/allcast/allcast/internal/engine/observer"
)

type (
	// Config describes what an Engine runs on.
	Config = control.Config
	// Reduction describes the aggregators of the job.
	Reduction = control.Reduction
	// PortTraffic counts the datagrams between a rank and its aggregators.
	PortTraffic = datapath.PortTraffic
	// A Call is a collective that this rank takes part in.
	Call = control.Call
	// A Message is a Send or a Recv of this rank.
	Message = control.Message
	// A Request is a call under way.
	Request = control.Request
)

// The algorithms of packages mcast and inc, the source of any message, the communicators of all ranks, and the first
// free id.
const (
	Multicast = control.Multicast
	Inc       = control.Inc
	AnyRank   = control.AnyRank
	World     = control.World
	Lifecycle = control.Lifecycle
	FirstComm = control.FirstComm
)

// Errors that callers compare with errors.Is.
var (
	ErrCall        = control.ErrCall
	ErrClosed      = control.ErrClosed
	ErrNoMulticast = control.ErrNoMulticast

	ErrNoAggregation = control.ErrNoAggregation
	ErrInUse         = datapath.ErrInUse
	ErrNotAlloced    = datapath.ErrNotAlloced
)

// An Engine is one process's part of a job. Control starts and ends calls, and Observer shows them.
type Engine struct {
	*control.Control
	*observer.Observer
}

// New starts an engine.
func New(cfg Config) (*Engine, error) {
	c, o, err := control.New(cfg)
	if err != nil {
		return nil, err
	}
	return &Engine{c, o}, nil
}
