package inc

import (
	"fmt"
	"slices"
	"strings"

	"github.com/allcast/allcast/internal/step"
)

// Aggregated reports whether aggregators make the sums. It is false in the barrier, and when owners fetch.
func (o *Op) Aggregated() bool { return o.aggregated }

// FellBack reports whether aggregators did not make all sums of this rank, because they could not be used or because
// the operation continued without them.
func (o *Op) FellBack() bool { return o.fellBack }

// Noticed returns the rank that found the aggregators to have failed during the transfer, or -1 if none did.
func (o *Op) Noticed() int { return o.noticed }

// Timer returns the time of the next timer.
func (o *Op) Timer() step.Time { return o.timer }

// Phase returns the current phase.
func (o *Op) Phase() step.Phase { return o.phase }

// Times returns the times at which the Op reached its phases.
func (o *Op) Times() step.Times { return o.times }

// Stats returns the counters.
func (o *Op) Stats() step.Stats { return o.stats }

// WaitingOn returns the rank that must act next, as far as this rank can tell. It returns this rank if it waits for
// no other rank, or for sums: the aggregators do not say which rank they wait for.
func (o *Op) WaitingOn() int {
	switch o.phase {
	case step.Barrier:
		return o.neighbour(slices.Index(o.ready, false))
	case step.Handshake:
		return o.neighbour(slices.Index(o.finished, false))
	case step.Transfer:
		if o.aggregated && o.repair.have >= o.granted() {
			return o.neighbour(slices.IndexFunc(o.credit.child, func(g uint32) bool { return g <= o.credit.all }))
		}
	}
	return o.red.Rank
}

// Awaits reports whether the Op cannot end without a message that a neighbour has not sent. It knows that only in the
// barrier: after it, all ranks take part.
func (o *Op) Awaits(rank int) bool {
	if o.phase != step.Barrier {
		return false
	}
	child := slices.Index(o.children, rank)
	return rank == o.parent || child >= 0 && !o.ready[child]
}

// neighbour returns a child in the control tree, or the parent without one.
func (o *Op) neighbour(child int) int {
	switch {
	case child >= 0:
		return o.children[child]
	case o.parent >= 0:
		return o.parent
	}
	return o.red.Rank
}

// Missing describes the missing chunks for error messages.
func (o *Op) Missing(step.Namer) string {
	const maxRanges = 8
	var b strings.Builder
	ranges, chunks := 0, uint32(0)
	for at := o.record.NextMissing(0, o.chunks); at < o.chunks; {
		end := o.record.NextInPlace(at, o.chunks)
		if ranges++; ranges <= maxRanges {
			fmt.Fprintf(&b, ", %d-%d", at, end-1)
		}
		chunks += end - at
		at = o.record.NextMissing(end, o.chunks)
	}
	switch {
	case ranges == 0:
		return "nothing"
	case ranges > maxRanges:
		fmt.Fprintf(&b, ", and %d more ranges", ranges-maxRanges)
	}
	return fmt.Sprintf("%d of %d chunks of the sum: %s", chunks, o.chunks, b.String()[2:])
}
