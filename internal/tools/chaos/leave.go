//go:build linux

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/allcast/allcast"
)

// Orders of the runner to a rank in mode leave, one per line. Until an order is given, the rank is well.
const (
	orderExit  = "exit"  // leave the job between two calls; the limit of CloseWithin follows
	orderEnd   = "end"   // end the process at once, wherever it is
	orderPanic = "panic" // panic at once
)

// rareCloses is the rarity of communicators that a rank closes early, in steps per rank of the world.
const rareCloses = 3

// rareCancels is how much rarer contexts end in mode leave than in mode cancel, so that epochs are long enough for
// communicators to be closed and used.
const rareCancels = 8

// errLeaving ends the work of a rank that has been told to leave.
var errLeaving = errors.New("told to leave")

// orderLeave makes a random rank leave the job.
func (r *runner) orderLeave() {
	kind, victim, length := r.drawFault()
	if p := r.victim(victim); p != nil {
		order := orderExit
		switch {
		case kind < 25:
			order = orderEnd
		case kind < 50:
			order = orderPanic
		}
		r.begin(p, order, true)
		if order == orderExit {
			order += fmt.Sprint(" ", time.Duration(length*float64(r.cfg.timeout)).Round(time.Millisecond))
		}
		r.record("rank %d is told to leave: %s", p.rank, order)
		_, _ = fmt.Fprintln(p.in, order) // fails only if the process has ended
	}
}

// obey follows the orders of the runner until it asks the rank to stop. A process ends or panics here while its
// other goroutine may be anywhere in a call.
func (r *rank) obey(in io.Reader) {
	for lines := bufio.NewScanner(in); lines.Scan(); {
		switch order, limit, _ := strings.Cut(lines.Text(), " "); order {
		case orderEnd:
			os.Exit(3)
		case orderPanic:
			panic("told to panic")
		case orderExit:
			d, err := time.ParseDuration(limit)
			if err != nil {
				panic(err) // cannot happen: the runner is this program
			}
			r.leaveWithin.Store(&d)
		}
	}
	r.stopping.Store(true)
}

// closeEarly sometimes closes a communicator that other ranks still use, in mode leave.
func (r *rank) closeEarly() {
	if r.script.mode != modeLeave || len(r.pool) == 0 || r.stopping.Load() ||
		r.draw.IntN(rareCloses*r.world.Size()) > 0 {
		return
	}
	c := r.pool[r.draw.IntN(len(r.pool))]
	if c.Comm == nil {
		return // this rank is not a member, or has closed it
	}
	r.commName = c.name
	r.report(report{Kind: kindClosed})
	r.drop(c.name)
}

// drop closes a communicator on this rank, which skips its steps from now on. The pool stays equally long on all
// ranks.
func (r *rank) drop(name string) {
	for i, c := range r.pool {
		if c.name == name {
			_ = c.Close() // fails if it is already broken
			r.pool[i].Comm = nil
		}
	}
}

// continuesAfter reports whether a failure concerns one communicator beside the main one, in mode leave: one of its
// members has closed it, or has cancelled a call. Then the rank drops it, and goes on with the others.
func (r *rank) continuesAfter(err error) bool {
	if r.script.mode != modeLeave || r.commName == r.main.name {
		return false
	}
	n, ok := r.commFailure(err)
	if ok {
		r.report(n)
		r.drop(r.commName)
	}
	return ok
}

// commFailure returns the report about a communicator that failed while the job is intact.
func (r *rank) commFailure(err error) (report, bool) {
	var failed *allcast.RankError
	closed := r.script.mode == modeLeave && errors.Is(err, allcast.ErrClosed)
	if errors.Is(err, errContract) || !errors.As(err, &failed) || !closed && !errors.Is(err, allcast.ErrAborted) {
		return report{}, false
	}
	n := report{Kind: kindNoComm, Ranks: []int{failed.WorldRank}, Text: err.Error()}
	if errors.Is(err, context.DeadlineExceeded) {
		n.Kind = kindCommCancelled
		r.count.Cancelled++
	}
	return n, true
}

// hasLeft reports whether a rank was told to leave, and can have left in that epoch.
func (r *runner) hasLeft(rank, epoch int) bool {
	if rank < 0 || rank >= len(r.ranks) {
		return false
	}
	p := r.ranks[rank]
	return p.fault != "" && epoch >= p.epoch
}
