package mcast

import (
	"github.com/allcast/allcast/internal/clustertest"
	"github.com/allcast/allcast/internal/step"
	"github.com/allcast/allcast/internal/wire"
)

// checkRange checks that an action of a Collective makes sense by itself: whatever events a Collective
// gets, a driver must be able to carry out its actions.
func checkRange(t clustertest.TB, o *Collective, a *step.Action) {
	g := o.g
	if a.To < 0 || a.To >= g.Size() {
		t.Fatalf("rank %d: action %d for rank %d of %d", o.rank, a.Kind, a.To, g.Size())
	}
	switch a.Kind {
	case step.ActSend:
		if a.To == o.rank {
			t.Fatalf("rank %d sends kind %d to itself", o.rank, a.Msg.Kind)
		}
		if a.Msg.Comm != o.cfg.Comm || a.Msg.Seq != o.cfg.Seq {
			t.Fatalf("rank %d: kind %d is for operation %d of %d", o.rank, a.Msg.Kind, a.Msg.Seq, a.Msg.Comm)
		}
		b := wire.AppendMsg(nil, &a.Msg)
		if _, err := wire.ParseMsg(b); err != nil || len(b) > wire.MaxMsg {
			t.Fatalf("rank %d: kind %d of %d bytes does not decode: %v", o.rank, a.Msg.Kind, len(b), err)
		}
		checkRanges(t, o, a)
	case step.ActMulticast:
		first, n := g.Block(a.Stream, o.rank)
		if a.N == 0 || a.N > o.cfg.Batch || a.PSN < first || a.PSN+a.N > first+n {
			t.Fatalf("rank %d multicasts PSN %d-%d of subgroup %d, its own begin at %d and are %d",
				o.rank, a.PSN, a.PSN+a.N-1, a.Stream, first, n)
		}
	case step.ActRead:
		if a.To != o.left {
			t.Fatalf("rank %d reads from rank %d, its left neighbour is %d", o.rank, a.To, o.left)
		}
		if len(a.Ranges) == 0 || len(a.Ranges) > wire.MaxRanges {
			t.Fatalf("rank %d reads %d ranges at once", o.rank, len(a.Ranges))
		}
		for _, q := range a.Ranges {
			checkOneOwner(t, o, a.Stream, q)
		}
	}
}

// checkRanges checks the contents of Fetch and Avail.
func checkRanges(t clustertest.TB, o *Collective, a *step.Action) {
	if a.Msg.Kind != wire.MsgFetch && a.Msg.Kind != wire.MsgAvail {
		return
	}
	if len(a.Msg.Ranges) == 0 {
		t.Fatalf("rank %d: kind %d says nothing", o.rank, a.Msg.Kind)
	}
	sub := int(a.Msg.Stream)
	for _, q := range a.Msg.Ranges {
		if q.N == 0 || uint64(q.PSN)+uint64(q.N) > uint64(o.g.PSNs(sub)) {
			t.Fatalf("rank %d: kind %d with PSN %d-%d of %d", o.rank, a.Msg.Kind, q.PSN, q.PSN+q.N-1, o.g.PSNs(sub))
		}
	}
	if want := o.left; a.Msg.Kind == wire.MsgFetch && a.To != want {
		t.Fatalf("rank %d asks rank %d, its left neighbour is %d", o.rank, a.To, want)
	}
	if want := o.right; a.Msg.Kind == wire.MsgAvail && a.To != want {
		t.Fatalf("rank %d offers to rank %d, its right neighbour is %d", o.rank, a.To, want)
	}
}

// checkOneOwner checks that a range can be read with one contiguous read.
func checkOneOwner(t clustertest.TB, o *Collective, sub int, q wire.Range) {
	if q.N == 0 || int64(q.N) > max(1, readBytes/o.g.chunk) || uint64(q.PSN)+uint64(q.N) > uint64(o.g.PSNs(sub)) {
		t.Fatalf("rank %d: PSN %d-%d of %d in one read", o.rank, q.PSN, q.PSN+q.N-1, o.g.PSNs(sub))
	}
	if a, b := o.g.Owner(sub, q.PSN), o.g.Owner(sub, q.PSN+q.N-1); a != b {
		t.Fatalf("rank %d: PSN %d-%d of ranks %d and %d in one read", o.rank, q.PSN, q.PSN+q.N-1, a, b)
	}
}
