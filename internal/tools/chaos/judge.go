//go:build linux

package main

import (
	"slices"
	"strings"
	"time"
)

// handle judges an event.
func (r *runner) handle(e event) {
	if e.do != nil {
		e.do()
		return
	}
	p := r.ranks[e.rank]
	if e.report == nil {
		r.handleExit(p, e.end)
		return
	}
	n := e.report
	if n.Kind != kindProgress {
		r.record("rank %d: %v", p.rank, n)
	}
	switch n.Kind {
	case kindJoined:
		p.joined = true
	case kindLost:
		r.aborts.add(p.rank, n)
		r.handleLost(p, n)
	case kindGivenUp:
		r.sum.givenUp++
		r.aborts.add(p.rank, n)
		if !r.cfg.mode.cancels() && p.unharmed() && r.all(func(p *process) bool { return p.unharmed() }) {
			r.violation("rank %d: %v, although no rank has failed", p.rank, n)
		}
	case kindNoComm:
		r.sum.noComms++
		r.aborts.add(p.rank, n)
	case kindClosed:
		r.sum.closed++
		r.aborts.add(p.rank, n)
	case kindCancelled, kindCommCancelled:
		r.aborts.add(p.rank, n)
	case kindEpoch:
		r.handleEpoch(p, n)
	case kindMissing:
		if p.unharmed() {
			r.checkBlamed(p, n)
		}
	case kindExcluded:
		p.lastKind = n.Kind
		if p.unharmed() {
			r.violation("rank %d is well, but the others excluded it", p.rank)
		}
	case kindWrong, kindHang:
		r.violation("rank %d: %v", p.rank, n)
	case kindUnexpected:
		p.lastKind = n.Kind
		if p.unharmed() {
			r.violation("rank %d: %v", p.rank, n)
		}
	case kindProgress:
		p.last = n.tally
		r.checkUsage(p, n.usage)
	case kindEnd:
		p.last, p.lastKind = n.tally, n.Kind
		r.checkLeaks(p, n)
	}
}

// checkBlamed checks that a blamed rank has really failed.
func (r *runner) checkBlamed(p *process, n *report) {
	for _, w := range n.Ranks {
		if w < 0 || w >= len(r.ranks) || r.ranks[w].unharmed() {
			r.violation("rank %d blames rank %d, which is well: %v", p.rank, w, n)
		}
	}
}

func (r *runner) handleLost(p *process, n *report) {
	if !p.unharmed() {
		r.sum.ownViews++ // the view of a rank that is cut off counts for itself only
		return
	}
	r.checkBlamed(p, n)
	for _, w := range n.Ranks {
		if w < 0 || w >= len(r.ranks) || !p.blamedAt[w].IsZero() || r.ranks[w].fault == "" {
			continue
		}
		p.blamedAt[w] = time.Now()
		r.sum.verdict(r.ranks[w].fault, time.Since(r.ranks[w].faultAt))
	}
}

// handleEpoch checks that all healthy ranks continue together.
func (r *runner) handleEpoch(p *process, n *report) {
	p.epoch = n.Epoch
	if !p.unharmed() {
		return
	}
	r.sum.shrinks++
	if known, ok := r.epochs[n.Epoch]; !ok {
		r.epochs[n.Epoch] = n.Ranks
	} else if !slices.Equal(known, n.Ranks) {
		r.violation("rank %d goes on with %v, others with %v", p.rank, n.Ranks, known)
	}
	for _, q := range r.ranks {
		if q.unharmed() && !slices.Contains(n.Ranks, q.rank) {
			r.violation("rank %d goes on with %v, without rank %d, which is well", p.rank, n.Ranks, q.rank)
		}
	}
}

// handleExit judges the end of a process.
func (r *runner) handleExit(p *process, end error) {
	p.exited = true
	r.record("rank %d: %v", p.rank, strings.ReplaceAll(end.Error(), "\n", ": "))
	switch {
	case p.fault == "kill" || p.fault == "cut" || p.fault == orderEnd || p.fault == orderPanic || p.doubtful:
	case p.fault == orderExit && p.lastKind == kindEnd:
	case p.fault == "stop" && (p.lastKind == kindExcluded || p.lastKind == kindEnd || p.lastKind == kindUnexpected):
	case p.unharmed() && p.lastKind == kindEnd && r.closing:
	default:
		r.violation("rank %d has ended without a reason; it last said %q", p.rank, p.lastKind)
	}
}

// checkLeaks checks the resources that remain after a rank has left the job.
func (r *runner) checkLeaks(p *process, n *report) {
	r.sum.left.grow(n.usage)
	if n.Goroutines > 0 || n.Files > ownFiles {
		r.violation("rank %d has %d goroutines and %d files more than before it joined: %s",
			p.rank, n.Goroutines, n.Files, n.Text)
	}
}

// checkUsage checks the resources of a working rank: connections to and from all ranks, and one or two
// goroutines for each.
func (r *runner) checkUsage(p *process, u usage) {
	r.sum.working.grow(u)
	if limit := 40 + 6*len(r.ranks); u.Goroutines > limit || u.Files > limit {
		r.violation("rank %d has %d goroutines and %d files: want at most %d", p.rank, u.Goroutines, u.Files, limit)
	}
}
