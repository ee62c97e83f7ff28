package p2p_test

import (
	"github.com/allcast/allcast/internal/p2p"
	"github.com/allcast/allcast/internal/step"
)

// deliver hands a piece to a rank's Inbox as a driver does, and tells its Executor. It calls take with the
// receive that it is and whether it must be held, then apply with each receive that was held and
// whose turn has come. It reports false if nobody expects the piece.
func deliver(
	op *p2p.Executor, in *p2p.Inbox, now step.Time, from int, nth uint32, length int64, take func(i int, r *p2p.Recv, hold bool), apply func(i int),
) (acts []step.Action, ok bool) {
	i, r, hold, ok := in.Take(from, nth, length)
	if !ok {
		return nil, false
	}
	take(i, r, hold)
	in.Arrived(i)
	for i := in.Next(); i >= 0; i = in.Next() {
		apply(i)
		in.Arrived(i)
	}
	prefix, left := in.Progress()
	return op.Received(now, prefix, left, nil), true
}
