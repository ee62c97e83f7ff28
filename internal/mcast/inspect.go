package mcast

import (
	"fmt"
	"strings"

	"github.com/allcast/allcast/internal/step"
	"github.com/allcast/allcast/internal/wire"
)

// Stats returns the counters of the Collective.
func (o *Collective) Stats() step.Stats { return o.stats }

// Times returns the times at which the Collective reached its phases.
func (o *Collective) Times() step.Times { return o.times }

// Phase returns the current phase.
func (o *Collective) Phase() step.Phase { return o.phase }

// Geometry returns the geometry of the round.
func (o *Collective) Geometry() *Geometry { return o.g }

// WaitingOn returns the rank that must act next, as far as this rank can tell. It returns this rank
// if the Collective waits only for the local fabric.
func (o *Collective) WaitingOn() int {
	switch o.phase {
	case step.Barrier:
		return o.bar.peer(o.bar.round)
	case step.Multicast, step.Fetch:
		if !o.snd.finished() {
			return o.sendWaitsOn()
		}
		if o.fetch.asked() > 0 {
			return o.left
		}
		for t := range o.arrived {
			a := &o.arrived[t]
			if psn := a.NextMissing(0, a.Len()); psn < a.Len() {
				return o.g.Owner(t, psn)
			}
		}
	case step.Handshake:
		return o.right
	}
	return o.rank
}

// Awaits reports whether the Collective cannot end without a message that a rank has not sent. It knows that only in
// the barrier: after it, all ranks take part.
func (o *Collective) Awaits(rank int) bool { return o.phase == step.Barrier && o.bar.awaits(rank) }

func (o *Collective) sendWaitsOn() int {
	switch {
	case !o.snd.active:
		return o.snd.pred
	case o.snd.blocked && o.tree.parent >= 0:
		return o.tree.parent
	case o.snd.blocked:
		for i, g := range o.cr.child {
			if g <= o.cr.all {
				return o.tree.children[i]
			}
		}
	}
	return o.rank
}

// Missing describes the missing chunks by owner, for error messages.
func (o *Collective) Missing(name step.Namer) string { return missingChunks(o.g, o.Placements(), name) }

// missingChunks describes the chunks that are not in place.
func missingChunks(g *Geometry, placements []*Placement, name step.Namer) string {
	const maxRanges = 8
	var b strings.Builder
	ranges := 0
	for t, p := range placements {
		for _, rank := range g.senders {
			var block wire.Range
			block.PSN, block.N = g.Block(t, rank)
			for q := range runs(block, p.NextMissing, p.NextInPlace) {
				if ranges++; ranges > maxRanges {
					continue
				}
				if ranges > 1 {
					b.WriteString(", ")
				}
				_, inBlock, _ := g.Locate(t, q.PSN)
				first := inBlock / g.chunk
				fmt.Fprintf(&b, "%s chunks %d-%d", name.Name(rank), first, first+int64(q.N)-1)
			}
		}
	}
	if ranges > maxRanges {
		fmt.Fprintf(&b, ", and %d more ranges", ranges-maxRanges)
	}
	if ranges == 0 {
		return "nothing"
	}
	return b.String()
}
