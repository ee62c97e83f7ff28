package mcast

import (
	"slices"
	"testing"

	"github.com/allcast/allcast/internal/step"
	"github.com/allcast/allcast/internal/wire"
)

// said collects the ranges of all messages of a kind.
func said(acts []step.Action, kind wire.MsgKind) (ranges []wire.Range, messages int) {
	for _, a := range acts {
		if a.Kind == step.ActSend && a.Msg.Kind == kind {
			ranges = append(ranges, a.Msg.Ranges...)
			messages++
		}
	}
	return ranges, messages
}

// reads returns the ranges of all reads, and the number of reads.
func reads(acts []step.Action) (ranges []wire.Range, n int) {
	for _, a := range acts {
		if a.Kind == step.ActRead {
			ranges = append(ranges, a.Ranges...)
			n++
		}
	}
	return ranges, n
}

// A Fetch and an Avail may span owners. A read covers many ranges, each of one owner, so that it is
// one piece of the receive buffer.
func TestReadsAreCutAtOwners(t *testing.T) {
	s := allgather(4, 9, 4, 1, 1) // 3 chunks a rank, each with a short tail
	o := paperOp(t, s, 2)
	for _, psn := range []uint32{0, 1, 2, 3, 4, 5} {
		_, _, length := o.g.Locate(0, psn)
		o.Chunk(1, 0, psn, length, nil)
	}
	got, _ := said(hear(o, 3, wire.Msg{Kind: wire.MsgFetch, Ranges: []wire.Range{{PSN: 1, N: 7}}}), wire.MsgAvail)
	if want := []wire.Range{{PSN: 1, N: 7}}; !slices.Equal(got, want) {
		t.Errorf("offered %v, want %v", got, want)
	}

	o = paperOp(t, s, 2)
	hear(o, 0, wire.Msg{Kind: wire.MsgAllSent})
	o.Step(o.Timer(), step.Event{Kind: step.EvTimer}, nil)
	ranges, n := reads(hear(o, 1, wire.Msg{Kind: wire.MsgAvail, Ranges: []wire.Range{{PSN: 1, N: 11}}}))
	if want := []wire.Range{{PSN: 1, N: 2}, {PSN: 3, N: 3}, {PSN: 9, N: 3}}; n != 1 || !slices.Equal(ranges, want) {
		t.Errorf("%d reads of %v, want one of %v", n, ranges, want)
	}
}

// However many chunks are offered, few reads are in progress. No offer is forgotten, and the next read
// begins where the last one ended.
func TestReadsAreBounded(t *testing.T) {
	const chunk, perRead = 64 << 10, readBytes / (64 << 10)
	const chunks = (MaxReads + 2) * perRead
	o := paperOp(t, broadcast(2, 0, chunks*chunk, chunk, 1), 1)
	hear(o, 0, wire.Msg{Kind: wire.MsgAllSent})
	o.Step(o.Timer(), step.Event{Kind: step.EvTimer}, nil)
	pending := hear(o, 0, wire.Msg{Kind: wire.MsgAvail, Ranges: []wire.Range{{PSN: 0, N: chunks}}})
	if ranges, n := reads(pending); n != MaxReads || ranges[0] != (wire.Range{PSN: 0, N: perRead}) {
		t.Fatalf("%d reads of %v, want %d", n, ranges, MaxReads)
	}
	for read := 0; o.count.missing > 0; read++ {
		a := pending[0]
		if want := []wire.Range{{PSN: uint32(read) * perRead, N: perRead}}; !slices.Equal(a.Ranges, want) {
			t.Fatalf("read %d is of %v, want %v", read, a.Ranges, want)
		}
		pending = append(pending[1:], o.readDone(5, 0, o.claim(&a))...)
		if _, n := reads(pending); n > MaxReads {
			t.Fatalf("%d reads in progress", n)
		}
	}
}

// A read covers many short gaps, and skips chunks that came meanwhile.
func TestReadsCoverGaps(t *testing.T) {
	const chunks = 4 * wire.MaxRanges
	o := paperOp(t, broadcast(2, 0, chunks, 1, 1), 1)
	for psn := uint32(1); psn < chunks; psn += 2 {
		o.Chunk(1, 0, psn, 1, nil)
	}
	hear(o, 0, wire.Msg{Kind: wire.MsgAllSent})
	o.Step(o.Timer(), step.Event{Kind: step.EvTimer}, nil)
	o.Chunk(9, 0, 4, 1, nil) // late
	ranges, n := reads(hear(o, 0, wire.Msg{Kind: wire.MsgAvail, Ranges: []wire.Range{{PSN: 0, N: chunks}}}))
	if n != chunks/2/wire.MaxRanges || len(ranges) != chunks/2-1 || slices.Contains(ranges, wire.Range{PSN: 4, N: 1}) {
		t.Errorf("%d reads of %d gaps, want %d of %d", n, len(ranges), chunks/2/wire.MaxRanges, chunks/2-1)
	}
}

// A read whose chunks have all arrived meanwhile makes room for the next one.
func TestReadThatWinsNothing(t *testing.T) {
	o := paperOp(t, broadcast(2, 0, 8, 1, 1), 1)
	hear(o, 0, wire.Msg{Kind: wire.MsgAllSent})
	o.Step(o.Timer(), step.Event{Kind: step.EvTimer}, nil)
	a := hear(o, 0, wire.Msg{Kind: wire.MsgAvail, Ranges: []wire.Range{{PSN: 0, N: 3}}})[0]
	for psn := range uint32(3) {
		o.Chunk(3, 0, psn, 1, nil)
	}
	won := o.claim(&a)
	if o.readDone(4, 0, won); len(won) != 0 || o.fetch.reads != 0 || o.stats.Repaired != 0 || o.count.missing != 5 {
		t.Errorf("won %v, %d reads in progress, %d repaired, %d missing",
			won, o.fetch.reads, o.stats.Repaired, o.count.missing)
	}
}

// More gaps than one message holds: several messages, none too long.
func TestManyGaps(t *testing.T) {
	const gaps = 2*wire.MaxRanges + 10
	s := broadcast(3, 0, 2*gaps, 1, 1)
	o := paperOp(t, s, 1)
	for i := range uint32(gaps) {
		o.Chunk(1, 0, 2*i+1, 1, nil)
	}
	asked, messages := said(o.Step(o.Timer(), step.Event{Kind: step.EvTimer}, nil), wire.MsgFetch)
	if len(asked) != gaps || messages != 3 {
		t.Fatalf("%d gaps asked for in %d messages, want %d in 3", len(asked), messages, gaps)
	}
	for i, q := range asked {
		if want := (wire.Range{PSN: 2 * uint32(i), N: 1}); q != want {
			t.Fatalf("gap %d: %v, want %v", i, q, want)
		}
	}
	root := paperOp(t, s, 0)
	var acts []step.Action
	for len(asked) > 0 {
		n := min(len(asked), wire.MaxRanges)
		acts = append(acts, hear(root, 1, wire.Msg{Kind: wire.MsgFetch, Ranges: asked[:n]})...)
		asked = asked[n:]
	}
	if offered, messages := said(acts, wire.MsgAvail); len(offered) != gaps || messages != 3 {
		t.Errorf("%d gaps offered in %d messages", len(offered), messages)
	}
}

// The cutoff moves with progress, because a slow sender is not a loss. Without progress it backs off.
func TestCutoffMoves(t *testing.T) {
	const chunk, alpha = 1000, 10 * step.Microsecond
	o := New(Config{
		Geometry: oneRound(t, broadcast(2, 0, 10*chunk, chunk, 1)), Rank: 1,
		Est: NewEstimator(Limits{LinkRate: 1, Alpha: alpha, MinAlpha: alpha, MaxAlpha: step.Second}),
	})
	o.Step(0, step.Event{Kind: step.EvStart}, nil)
	o.Step(100, step.Event{Kind: step.EvMsg, Msg: &wire.Msg{Kind: wire.MsgBarrier, Round: 1, Digest: o.g.Digest()}}, nil)
	expect := func(when string, want step.Time) {
		t.Helper()
		if got := o.Timer(); got != want {
			t.Errorf("%s: cutoff at %d, want %d", when, got, want)
		}
	}
	expect("after the barrier, for 10 chunks", 100+10*chunk+alpha)
	o.Chunk(5000, 0, 0, chunk, nil)
	expect("after a chunk, for 9", 5000+9*chunk+alpha)
	first := o.Timer()
	o.Step(first, step.Event{Kind: step.EvTimer}, nil)
	expect("after a cutoff in vain, twice as long", first+2*(9*chunk+alpha))
	second := o.Timer()
	o.Step(second, step.Event{Kind: step.EvTimer}, nil)
	expect("and again", second+4*(9*chunk+alpha))
	o.Chunk(second+7, 0, 1, chunk, nil)
	expect("after progress as before", second+7+8*chunk+alpha)
	o.Step(second+9, step.Event{Kind: step.EvMsg, Msg: &wire.Msg{Kind: wire.MsgAllSent}}, nil)
	expect("when all is sent, what may be on its way", second+9+8*chunk+o.cfg.Est.dev+alpha/4)
	o.Step(o.Timer(), step.Event{Kind: step.EvTimer}, nil)
	expect("when all was asked for", step.Never)
}
