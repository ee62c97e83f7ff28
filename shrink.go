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

// ErrMissing means that a living rank did not take part in a Shrink.
var ErrMissing = errors.New("a rank did not take part")

// A ShrinkError is the error of a Shrink that failed, the same on all survivors. It matches ErrMissing. If the
// other ranks have declared this rank lost and continued without it, it matches ErrRankLost instead.
type ShrinkError struct {
	Ranks      []int // ranks at fault, as numbered in the communicator to be shrunk
	WorldRanks []int // world ranks of Ranks

	cause  error
	reason string
	names  string
	ctxErr error // error of this rank's context
}

func (e *ShrinkError) Error() string {
	return fmt.Sprintf("allcast: shrink: %s %s", e.names, e.reason)
}

// Unwrap returns the kind of failure, and the error of ctx if it has ended.
func (e *ShrinkError) Unwrap() []error {
	if e.ctxErr == nil {
		return []error{e.cause}
	}
	return []error{e.cause, e.ctxErr}
}

var shrinkFailures = map[uint8]struct {
	cause  error
	reason string
}{
	agree.Late:     {ErrMissing, "did not call Shrink in time"},
	agree.Closed:   {ErrMissing, "closed the communicator"},
	agree.Excluded: {ErrRankLost, "was declared lost by the other ranks, which continue without it"},
}

// Shrink makes a communicator of the living ranks of c, in the same order. Use it after a failure; c itself
// stays broken. All living ranks of c call it, including those that have not seen the failure.
//
// All of them get the same ranks, or the same *ShrinkError. The error names living ranks that did not call
// Shrink within Options.Timeout, or Options.Deadline if that is longer, or before the ctx of a rank ended.
// The ranks may then try again.
//
// The ranks agree even if some of them die meanwhile. A rank that dies at the very end may still be a member
// of the new communicator. Operations on that communicator then fail, and it can be shrunk in turn. If
// communicators have their own multicast groups, the ranks test these groups before Shrink returns. The
// time for the test is bounded and does not depend on ctx.
//
// Close c when you no longer need it, unless Join returned it: closing that communicator leaves the job.
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
	if c.job.HasGroups() {
		// All ranks take part, so this ends soon even without ctx. A rank that dies now breaks the new
		// communicator, which the caller may shrink in turn.
		ctx := context.WithoutCancel(ctx)
		c.job.AwaitGroups(sub.id)
		if sub.Barrier(ctx) != nil || sub.testGroups(ctx, sub) != nil {
			_ = c.job.Abort(sub.id) // fails only if the job is closed
		}
	}
	return sub, nil
}

func shrinkError(ctx context.Context, a *node.Agreed, members []int) error {
	f, ok := shrinkFailures[a.Why]
	if !ok {
		f = shrinkFailures[agree.Closed] // only a faulty peer sends an unknown reason
	}
	e := &ShrinkError{WorldRanks: a.Ranks, cause: f.cause, reason: f.reason, ctxErr: ctx.Err()}
	var names []string
	for _, w := range a.Ranks {
		e.Ranks = append(e.Ranks, slices.Index(members, w))
		names = append(names, rankName(w, members))
	}
	e.names = strings.Join(names, ", ")
	return e
}

// newID returns an id that no other communicator of the job has. A process, given as a world rank, uses each
// number nth once, and no two processes get the same ids.
func (j *job) newID(nth uint32, process int) (uint32, error) {
	id := engine.FirstComm + uint64(nth)*uint64(j.Settings.Size) + uint64(process)
	if id >= math.MaxUint32 {
		return 0, fmt.Errorf("allcast: too many communicators: this process has already created %d", nth)
	}
	return uint32(id), nil
}
