//go:build linux

package main

import (
	"fmt"
	"math/rand/v2"
	"slices"
)

// mode is the kind of trouble that the runner causes.
type mode string

const (
	modeFaults mode = "faults" // ranks are killed, stopped and cut off
	modeLoss   mode = "loss"   // large operations with small chunks lose up to 30 % of their datagrams
	modeCancel mode = "cancel" // contexts of blocking calls end
)

var modes = []mode{modeFaults, modeLoss, modeCancel}

// Set reads a mode from the command line.
func (m *mode) Set(s string) error {
	if !slices.Contains(modes, mode(s)) {
		return fmt.Errorf("want one of %v", modes)
	}
	*m = mode(s)
	return nil
}

func (m *mode) String() string { return string(*m) }

// hosts returns the default number of ranks.
func (m mode) hosts() int {
	if m == modeLoss {
		return 4 // each rank has buffers of many MiB
	}
	return 8
}

// size returns the default maximum of bytes per call.
func (m mode) size() int {
	if m == modeLoss {
		return 512 << 20
	}
	return 4 << 20
}

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
