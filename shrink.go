package allcast

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/allcast/allcast/internal/agree"
	"github.com/allcast/allcast/internal/engine"
	"github.com/allcast/allcast/internal/node"
)

// ErrMissing is what Shrink's error matches when a rank lives but did not come.
var ErrMissing = errors.New("a rank did not take part")

// A ShrinkError is why the survivors could not go on together, the same on all of
// them. It matches ErrMissing; or ErrRankLost, if the others have taken this rank for
// lost and gone on without it.
type ShrinkError struct {
	Ranks      []int // ranks at fault, as numbered in the communicator that was to be shrunk
	WorldRanks []int // the same ranks, as numbered in the world
	cause      error
	reason     string
	names      string
	ctx        error // of this rank's context
}

func (e *ShrinkError) Error() string {
	return fmt.Sprintf("allcast: shrink: %s %s", e.names, e.reason)
}

// Unwrap returns what kind of failure it was, and that ctx has ended if it has.
func (e *ShrinkError) Unwrap() []error {
	if e.ctx == nil {
		return []error{e.cause}
	}
	return []error{e.cause, e.ctx}
}

var shrinkFailures = map[uint8]struct {
	cause  error
	reason string
}{
	agree.Late:     {ErrMissing, "did not come in time"},
	agree.Closed:   {ErrMissing, "closed the communicator"},
	agree.Excluded: {ErrRankLost, "was taken for lost by the others, which go on without it"},
}

// Shrink makes a communicator of the ranks of c that live, in the same order. It is
// what to do after a failure: c may be broken, and stays so. All ranks of c that live
// call it, also those that have not seen the failure. All of them get the same ranks, or
// all get the same error: a ShrinkError, that names those that live but did not come
// within Options.Timeout (or Options.Deadline, if that is longer), or before the ctx of
// one of them ended. Then they may try again.
//
// Ranks may die meanwhile; what then is left agrees all the same. One that dies at the
// very end may still be among the new ranks: operations on the new communicator fail
// then, and it can be shrunk in turn. Where communicators have multicast groups of
// their own, the ranks test them before Shrink returns, in bounded time that does not
// depend on ctx.
//
// Close c when it is of no more use, unless it is the one that Join returned: closing
// that leaves the job.
func (c *Comm) Shrink(ctx context.Context) (*Comm, error) {
	switch {
	case c == nil:
		return nil, invalid("a nil communicator")
	case c.closed.Load():
		return nil, exportError(engine.ErrClosed, nil)
	}
	id, err := c.job.newID(c.job.splits.Add(1)-1, c.members[c.rank])
	if err != nil {
		return nil, err
	}
	a, err := c.job.Agree(ctx, c.id, id)
	if err != nil {
		return nil, exportError(err, c.members)
	}
	if a.Members == nil {
		return nil, shrinkError(ctx, a, c.members)
	}
	sub := &Comm{job: c.job, id: a.ID, members: a.Members}
	for i, w := range a.Members {
		if w == c.members[c.rank] {
			sub.rank = i
		}
	}
	if c.job.OwnGroups(sub.id) {
		// All ranks have come, so this ends soon whatever becomes of ctx. A rank that dies now breaks
		// the new communicator, which the caller may shrink in turn.
		ctx := context.WithoutCancel(ctx)
		if sub.Barrier(ctx) != nil || sub.settleGroups(ctx) != nil {
			_ = c.job.Abort(sub.id) // it exists, or all is closed
		}
	}
	return sub, nil
}

func shrinkError(ctx context.Context, a *node.Agreed, members []int) error {
	f, ok := shrinkFailures[a.Why]
	if !ok {
		f = shrinkFailures[agree.Closed] // only a peer can have made it up
	}
	e := &ShrinkError{WorldRanks: a.Ranks, cause: f.cause, reason: f.reason, ctx: ctx.Err()}
	var names []string
	for _, w := range a.Ranks {
		e.Ranks = append(e.Ranks, slices.Index(members, w))
		names = append(names, rankName(w, members))
	}
	e.names = strings.Join(names, ", ")
	return e
}

// newID is an id that no other communicator of the job has: a process, given as a world
// rank, has not used the number before, and no other process has numbers like it.
func (j *job) newID(nth uint32, process int) (uint32, error) {
	id := engine.FirstComm + uint64(nth)*uint64(j.Settings.Size) + uint64(process)
	if id >= math.MaxUint32 {
		return 0, fmt.Errorf("allcast: no more communicators: there were %d", nth)
	}
	return uint32(id), nil
}
