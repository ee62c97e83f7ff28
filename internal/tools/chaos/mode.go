//go:build linux

package main

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
)

// mode is the kind of trouble that the runner causes.
type mode string

const (
	modeFaults mode = "faults" // ranks are killed, stopped and cut off
	modeLoss   mode = "loss"   // large operations with small chunks lose up to 30 % of their datagrams
	modeCancel mode = "cancel" // contexts of blocking calls end
	modeLeave  mode = "leave"  // ranks close communicators, end, panic, leave and cancel calls

	modeAggregators mode = "aggregators" // aggregators are killed, stopped and restarted
)

// modes are the valid modes with their default numbers of ranks and maximum bytes per call. In mode loss,
// each rank has buffers of many MiB.
var modes = map[mode]struct{ hosts, size int }{
	modeFaults: {8, 4 << 20},
	modeLoss:   {4, 512 << 20},
	modeCancel: {8, 4 << 20},
	modeLeave:  {8, 4 << 20},

	modeAggregators: {6, 4 << 20},
}

// Set reads a mode from the command line.
func (m *mode) Set(s string) error {
	if _, ok := modes[mode(s)]; !ok {
		return fmt.Errorf("want one of %v", slices.Sorted(maps.Keys(modes)))
	}
	*m = mode(s)
	return nil
}

func (m *mode) String() string { return string(*m) }

// cancels reports whether contexts of blocking calls end.
func (m mode) cancels() bool { return m == modeCancel || m == modeLeave }

// loss returns the network faults of one generation for ALLCAST_FAULT, or "" for none.
func (m mode) loss(r *rand.Rand, seed uint64) string {
	drop, none := 3*r.Float64(), r.IntN(3) == 0
	switch {
	case m == modeLoss:
		drop = 5 + 25*r.Float64()
	case none:
		return ""
	}
	return fmt.Sprintf("drop=%.2f%%,dup=%.2f%%,reorder=%.2f%%,seed=%d", drop, 2*r.Float64(), 5*r.Float64(), seed)
}
