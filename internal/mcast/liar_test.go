package mcast

import (
	"slices"
	"testing"

	"github.com/allcast/allcast/internal/step"
	"github.com/allcast/allcast/internal/wire"
)

// Peers that say what no peer with the same code would say: a lie may cost the
// operation, which is then aborted, but not what outlives it.

// hear makes a Collective hear messages from a rank.
func hear(o *Collective, from int, msgs ...wire.Msg) (acts []step.Action) {
	for i := range msgs {
		acts = o.Step(1, step.Event{Kind: step.EvMsg, From: from, Msg: &msgs[i]}, acts)
	}
	return acts
}

// started is a Collective in its barrier.
func started(t *testing.T, s Shape, rank int, cfg Config) *Collective {
	t.Helper()
	cfg.Geometry, cfg.Rank, cfg.Est = oneRound(t, s), rank, NewEstimator(Limits{})
	o := New(cfg)
	o.Step(1, step.Event{Kind: step.EvStart}, nil)
	return o
}

// A mark or a foreign datagram beyond the grant must not cost room: all operations of the process share
// the pool for its whole life.
func TestPoolSurvivesWhatWasNotGranted(t *testing.T) {
	for name, lie := range map[string]func(*Collective){
		"mark": func(o *Collective) {
			hear(o, 0, wire.Msg{Kind: wire.MsgMark, Rank: 0, Counts: []uint32{50}})
			o.Step(step.Second, step.Event{Kind: step.EvTimer}, nil)
		},
		"datagram": func(o *Collective) { o.Chunk(1, 0, 50, 1, nil) },
	} {
		pool := NewPool(8, nil)
		o := started(t, broadcast(2, 0, 100, 1, 1), 1, Config{Flow: FlowCredit, Pool: pool})
		hear(o, 0, wire.Msg{Kind: wire.MsgBarrier, Round: 1, Grant: 4, Digest: o.g.Digest()})
		lie(o)
		o.Fail()
		if pool.Lent() != 0 {
			t.Errorf("%s: %d of 8 places are lent to nobody", name, pool.Lent())
		}
	}
}

// RNR: whatever peers send, a rank multicasts nothing before its own barrier has ended.
func TestNothingIsSentBeforeTheBarrier(t *testing.T) {
	o := started(t, allgather(4, 8, 1, 1, 1), 1, Config{Flow: FlowCredit, Pool: NewPool(4, nil)})
	acts := hear(o, 0, wire.Msg{Kind: wire.MsgActivate}, wire.Msg{Kind: wire.MsgChainSent},
		wire.Msg{Kind: wire.MsgGrant, Grant: 1000}, wire.Msg{Kind: wire.MsgAllSent})
	acts = o.Step(1, step.Event{Kind: step.EvTimer}, acts)
	for _, a := range acts {
		if a.Kind == step.ActMulticast {
			t.Errorf("it multicasts PSN %d-%d in phase %v", a.PSN, a.PSN+a.N-1, o.Phase())
		}
	}
}

// Only children tell that their subtrees have sent all, and each counts once.
func TestSentUpCountsOnceAndFromChildren(t *testing.T) {
	o := started(t, broadcast(4, 3, 8, 1, 1), 0, Config{}) // children 1 and 2
	hear(o, 1, wire.Msg{Kind: wire.MsgBarrier, Round: 1, Digest: o.g.Digest()})
	hear(o, 2, wire.Msg{Kind: wire.MsgBarrier, Round: 2, Digest: o.g.Digest()})
	if o.Phase() != step.Multicast {
		t.Fatalf("phase %v", o.Phase())
	}
	hear(o, 3, wire.Msg{Kind: wire.MsgSentUp}, wire.Msg{Kind: wire.MsgSentUp})
	hear(o, 1, wire.Msg{Kind: wire.MsgSentUp}, wire.Msg{Kind: wire.MsgSentUp})
	if o.tree.allSent {
		t.Fatalf("it believes that all have sent, rank 2 has said nothing")
	}
	hear(o, 2, wire.Msg{Kind: wire.MsgSentUp})
	if !o.tree.allSent {
		t.Errorf("it does not know that all have sent")
	}
}

// Turns, offers, requests and Finals count only if they come from the right neighbour.
func TestOnlyNeighboursCount(t *testing.T) {
	o := started(t, allgather(8, 8, 1, 2, 1), 2, Config{}) // chain 0-3, ring 1-2-3
	o.bar.round = o.bar.last + 1
	o.phase = step.Multicast
	for from := range 8 {
		if from == 1 || from == 3 {
			continue
		}
		all := wire.Range{PSN: 0, N: 64}
		acts := hear(o, from,
			wire.Msg{Kind: wire.MsgActivate}, wire.Msg{Kind: wire.MsgChainSent}, wire.Msg{Kind: wire.MsgFinal},
			wire.Msg{Kind: wire.MsgFetch, Ranges: []wire.Range{all}}, wire.Msg{Kind: wire.MsgAvail, Ranges: []wire.Range{all}},
		)
		if len(acts) > 0 || o.snd.active || o.final.received || o.fetch.streams[0].wanted.Count() > 0 {
			t.Errorf("rank %d is listened to: %+v", from, acts)
		}
	}
}

// A rank does not read chunks that it has not requested, even if its left neighbour offers them.
func TestOffersThatNobodyAskedFor(t *testing.T) {
	o := started(t, broadcast(2, 0, 8, 1, 1), 1, Config{})
	hear(o, 0, wire.Msg{Kind: wire.MsgBarrier, Round: 1, Digest: o.g.Digest()})
	offer := wire.Msg{Kind: wire.MsgAvail, Ranges: []wire.Range{{PSN: 0, N: 8}}}
	if acts := hear(o, 0, offer); len(acts) > 0 {
		t.Errorf("before the cutoff: %+v", acts)
	}
	hear(o, 0, wire.Msg{Kind: wire.MsgMark, Rank: 0, Counts: []uint32{3}})
	o.Step(o.Timer(), step.Event{Kind: step.EvTimer}, nil)
	acts := hear(o, 0, offer, offer)
	if len(acts) != 1 || acts[0].Kind != step.ActRead || !slices.Equal(acts[0].Ranges, []wire.Range{{PSN: 0, N: 3}}) {
		t.Errorf("three were asked for: %+v", acts)
	}
}

// A rank ignores messages that do not fit the operation, or passes them on if it only relays.
func TestNonsenseIsIgnored(t *testing.T) {
	for _, flow := range []Flow{FlowNone, FlowCredit} {
		o := started(t, allgather(4, 8, 1, 1, 1), 0, Config{Flow: flow, Pool: NewPool(4, nil)})
		hear(o, 1, wire.Msg{Kind: wire.MsgBarrier, Round: 1, Grant: 1, Digest: o.g.Digest()})
		hear(o, 2, wire.Msg{Kind: wire.MsgBarrier, Round: 2, Grant: 1, Digest: o.g.Digest()})
		all := []wire.Range{{PSN: 0, N: 32}, {PSN: 31, N: 2}, {PSN: 32, N: 1}, {PSN: 1 << 31, N: 1 << 31}, {PSN: 5, N: 0}}
		acts := hear(o, 1,
			wire.Msg{Kind: wire.MsgFetch, Stream: 1, Ranges: all}, wire.Msg{Kind: wire.MsgFetch, Ranges: all[1:]},
			wire.Msg{Kind: wire.MsgGrant, Grant: 1 << 60}, wire.Msg{Kind: wire.MsgBarrier, Round: 200, Digest: o.g.Digest()},
			wire.Msg{Kind: wire.MsgReady}, wire.Msg{Kind: wire.MsgHeartbeat}, wire.Msg{Kind: 0}, wire.Msg{Kind: 255},
		)
		acts = append(acts, hear(o, 3, wire.Msg{Kind: wire.MsgAvail, Stream: 1, Ranges: all}, wire.Msg{
			Kind: wire.MsgAvail, Ranges: all,
		}, wire.Msg{Kind: wire.MsgGrantUp, Grant: 1 << 60})...)
		acts = append(acts, o.Step(1, step.Event{Kind: 99}, nil)...)
		if len(acts) > 0 {
			t.Errorf("%v: %+v", flow, acts)
		}
		for _, m := range []wire.Msg{
			{Kind: wire.MsgMark, Rank: 4, Counts: []uint32{8}},
			{Kind: wire.MsgMark, Rank: 1 << 31, Counts: []uint32{8}},
			{Kind: wire.MsgMark, Rank: 2},
			{Kind: wire.MsgMark, Rank: 2, Counts: []uint32{8, 8}},
		} {
			for _, a := range hear(o, 1, m) {
				if a.Kind != step.ActSend || a.To != 2 || a.Msg.Kind != wire.MsgMark {
					t.Errorf("%v, %+v: %+v", flow, m, a)
				}
			}
		}
		if o.arrived[0].sent[2] != 0 {
			t.Errorf("%v: rank 2 is thought to have sent %d", flow, o.arrived[0].sent[2])
		}
		// A count beyond the end of the block is clamped to the block.
		if hear(o, 1, wire.Msg{Kind: wire.MsgMark, Rank: 2, Counts: []uint32{1 << 31}}); o.arrived[0].sent[2] != 8 {
			t.Errorf("%v: rank 2 is thought to have sent %d of 8", flow, o.arrived[0].sent[2])
		}
	}
}

// A rank that asks again and again for scattered chunks is offered each of them once: the offers would
// queue for it, and it need not read them.
func TestChunksAreOfferedOnce(t *testing.T) {
	const chunks = 8 * wire.MaxRanges
	o := paperOp(t, broadcast(3, 0, chunks, 1, 1), 1)
	for psn := uint32(0); psn < chunks; psn += 2 {
		o.Chunk(1, 0, psn, 1, nil)
	}
	var acts []step.Action
	for range 10 {
		acts = append(acts, hear(o, 2, wire.Msg{Kind: wire.MsgFetch, Ranges: []wire.Range{{PSN: 0, N: chunks}}})...)
	}
	if offered, messages := said(acts, wire.MsgAvail); wire.Chunks(offered) != chunks/2 || messages != 4 {
		t.Errorf("%d chunks are offered in %d messages, want %d in 4", wire.Chunks(offered), messages, chunks/2)
	}
	// Chunks that come later are offered, once, though they were asked for before.
	acts = nil
	for psn := uint32(1); psn < chunks; psn += 2 {
		_, _, acts = o.Chunk(2, 0, psn, 1, acts)
	}
	acts = append(acts, hear(o, 2, wire.Msg{Kind: wire.MsgFetch, Ranges: []wire.Range{{PSN: 0, N: chunks}}})...)
	if offered, _ := said(acts, wire.MsgAvail); wire.Chunks(offered) != chunks/2 {
		t.Errorf("%d chunks are offered that came later, want %d", wire.Chunks(offered), chunks/2)
	}
}
