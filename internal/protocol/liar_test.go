package protocol

import (
	"slices"
	"testing"
)

// Peers that say what no peer with the same code would say: a lie may cost the
// operation, which is then aborted, but not what outlives it.

// hear makes an Op hear messages from a rank.
func hear(o *Op, from int, msgs ...Msg) (acts []Action) {
	for i := range msgs {
		acts = o.Step(1, Event{Kind: EvMsg, From: from, Msg: &msgs[i]}, acts)
	}
	return acts
}

// started is an Op in its barrier.
func started(t *testing.T, s Shape, rank int, cfg Config) *Op {
	t.Helper()
	cfg.Geometry, cfg.Rank, cfg.Est = oneRound(t, s), rank, NewEstimator(Limits{})
	o := NewOp(cfg)
	o.Step(1, Event{Kind: EvStart}, nil)
	return o
}

// A mark, or a stranger's datagram, beyond what was granted must not cost room: the
// pool belongs to all operations of the process, for ever.
func TestPoolSurvivesWhatWasNotGranted(t *testing.T) {
	for name, lie := range map[string]func(*Op){
		"mark": func(o *Op) {
			hear(o, 0, Msg{Kind: MsgMark, Rank: 0, Counts: []uint32{50}})
			o.Step(Second, Event{Kind: EvTimer}, nil)
		},
		"datagram": func(o *Op) { o.Chunk(1, 0, 50, 1, nil) },
	} {
		pool := NewPool(8, nil)
		o := started(t, broadcast(2, 0, 100, 1, 1), 1, Config{Flow: FlowCredit, Pool: pool})
		hear(o, 0, Msg{Kind: MsgBarrier, Round: 1, Grant: 4, Digest: o.g.Digest()})
		lie(o)
		o.Fail()
		if pool.Lent() != 0 {
			t.Errorf("%s: %d of 8 places are lent to nobody", name, pool.Lent())
		}
	}
}

// RNR: whoever says what, nothing is multicast before our own barrier is over.
func TestNothingIsSentBeforeTheBarrier(t *testing.T) {
	o := started(t, allgather(4, 8, 1, 1, 1), 1, Config{Flow: FlowCredit, Pool: NewPool(4, nil)})
	acts := hear(o, 0, Msg{Kind: MsgActivate}, Msg{Kind: MsgChainSent}, Msg{Kind: MsgGrant, Grant: 1000}, Msg{Kind: MsgAllSent})
	acts = o.Step(1, Event{Kind: EvTimer}, acts)
	for _, a := range acts {
		if a.Kind == ActMulticast {
			t.Errorf("it multicasts PSN %d-%d in phase %v", a.PSN, a.PSN+a.N-1, o.Phase())
		}
	}
}

// Only children tell that their subtrees have sent all, and each counts once.
func TestSentUpCountsOnceAndFromChildren(t *testing.T) {
	o := started(t, broadcast(4, 3, 8, 1, 1), 0, Config{}) // children 1 and 2
	hear(o, 1, Msg{Kind: MsgBarrier, Round: 1, Digest: o.g.Digest()})
	hear(o, 2, Msg{Kind: MsgBarrier, Round: 2, Digest: o.g.Digest()})
	if o.Phase() != Multicast {
		t.Fatalf("phase %v", o.Phase())
	}
	hear(o, 3, Msg{Kind: MsgSentUp}, Msg{Kind: MsgSentUp})
	hear(o, 1, Msg{Kind: MsgSentUp}, Msg{Kind: MsgSentUp})
	if o.tree.all {
		t.Fatalf("it believes that all have sent, rank 2 has said nothing")
	}
	hear(o, 2, Msg{Kind: MsgSentUp})
	if !o.tree.all {
		t.Errorf("it does not know that all have sent")
	}
}

// Turns, offers, requests and finals count from those neighbours only whose they are.
func TestOnlyNeighboursCount(t *testing.T) {
	o := started(t, allgather(8, 8, 1, 2, 1), 2, Config{}) // chain 0-3, ring 1-2-3
	o.bar.round = o.bar.last + 1
	o.phase = Multicast
	for from := range 8 {
		if from == 1 || from == 3 {
			continue
		}
		all := Range{0, 64}
		acts := hear(o, from,
			Msg{Kind: MsgActivate}, Msg{Kind: MsgChainSent}, Msg{Kind: MsgFinal},
			Msg{Kind: MsgFetch, Ranges: []Range{all}}, Msg{Kind: MsgAvail, Ranges: []Range{all}},
		)
		if len(acts) > 0 || o.snd.active || o.finalGot || o.fetch[0].wanting > 0 {
			t.Errorf("rank %d is listened to: %+v", from, acts)
		}
	}
}

// What was not asked for is not read, even if the left neighbour offers it.
func TestOffersThatNobodyAskedFor(t *testing.T) {
	o := started(t, broadcast(2, 0, 8, 1, 1), 1, Config{})
	hear(o, 0, Msg{Kind: MsgBarrier, Round: 1, Digest: o.g.Digest()})
	offer := Msg{Kind: MsgAvail, Ranges: []Range{{0, 8}}}
	if acts := hear(o, 0, offer); len(acts) > 0 {
		t.Errorf("before the cutoff: %+v", acts)
	}
	hear(o, 0, Msg{Kind: MsgMark, Rank: 0, Counts: []uint32{3}})
	o.Step(o.Timer(), Event{Kind: EvTimer}, nil)
	acts := hear(o, 0, offer, offer)
	if len(acts) != 1 || acts[0].Kind != ActRead || !slices.Equal(acts[0].Ranges, []Range{{0, 3}}) {
		t.Errorf("three were asked for: %+v", acts)
	}
}

// What does not fit this operation is ignored, or passed on by those who only relay.
func TestNonsenseIsIgnored(t *testing.T) {
	for _, flow := range []Flow{FlowNone, FlowCredit} {
		o := started(t, allgather(4, 8, 1, 1, 1), 0, Config{Flow: flow, Pool: NewPool(4, nil)})
		hear(o, 1, Msg{Kind: MsgBarrier, Round: 1, Grant: 1, Digest: o.g.Digest()})
		hear(o, 2, Msg{Kind: MsgBarrier, Round: 2, Grant: 1, Digest: o.g.Digest()})
		all := []Range{{0, 32}, {31, 2}, {32, 1}, {1 << 31, 1 << 31}, {5, 0}}
		acts := hear(o, 1,
			Msg{Kind: MsgFetch, Sub: 1, Ranges: all}, Msg{Kind: MsgFetch, Ranges: all[1:]},
			Msg{Kind: MsgGrant, Grant: 1 << 60}, Msg{Kind: MsgBarrier, Round: 200, Digest: o.g.Digest()},
			Msg{Kind: MsgReady}, Msg{Kind: MsgHeartbeat}, Msg{Kind: 0}, Msg{Kind: 255},
		)
		acts = append(acts, hear(o, 3, Msg{Kind: MsgAvail, Sub: 1, Ranges: all}, Msg{Kind: MsgAvail, Ranges: all}, Msg{Kind: MsgGrantUp, Grant: 1 << 60})...)
		acts = append(acts, o.Step(1, Event{Kind: 99}, nil)...)
		if len(acts) > 0 {
			t.Errorf("%v: %+v", flow, acts)
		}
		for _, m := range []Msg{
			{Kind: MsgMark, Rank: 4, Counts: []uint32{8}},
			{Kind: MsgMark, Rank: 1 << 31, Counts: []uint32{8}},
			{Kind: MsgMark, Rank: 2},
			{Kind: MsgMark, Rank: 2, Counts: []uint32{8, 8}},
		} {
			for _, a := range hear(o, 1, m) {
				if a.Kind != ActSend || a.To != 2 || a.Msg.Kind != MsgMark {
					t.Errorf("%v, %+v: %+v", flow, m, a)
				}
			}
		}
		if o.arrived[0].sent[2] != 0 {
			t.Errorf("%v: rank 2 is thought to have sent %d", flow, o.arrived[0].sent[2])
		}
		// Beyond the end is not beyond: a count is cut to what there is.
		if hear(o, 1, Msg{Kind: MsgMark, Rank: 2, Counts: []uint32{1 << 31}}); o.arrived[0].sent[2] != 8 {
			t.Errorf("%v: rank 2 is thought to have sent %d of 8", flow, o.arrived[0].sent[2])
		}
	}
}

// A rank that asks again and again for scattered chunks is offered each of them once: the offers would
// queue for it, and it need not read them.
func TestChunksAreOfferedOnce(t *testing.T) {
	const chunks = 8 * MaxRanges
	o := paperOp(t, broadcast(3, 0, chunks, 1, 1), 1)
	for psn := uint32(0); psn < chunks; psn += 2 {
		o.Chunk(1, 0, psn, 1, nil)
	}
	var acts []Action
	for range 10 {
		acts = append(acts, hear(o, 2, Msg{Kind: MsgFetch, Ranges: []Range{{0, chunks}}})...)
	}
	if offered, messages := said(acts, MsgAvail); Chunks(offered) != chunks/2 || messages != 4 {
		t.Errorf("%d chunks are offered in %d messages, want %d in 4", Chunks(offered), messages, chunks/2)
	}
	// Chunks that come later are offered, once, though they were asked for before.
	acts = nil
	for psn := uint32(1); psn < chunks; psn += 2 {
		_, _, acts = o.Chunk(2, 0, psn, 1, acts)
	}
	acts = append(acts, hear(o, 2, Msg{Kind: MsgFetch, Ranges: []Range{{0, chunks}}})...)
	if offered, _ := said(acts, MsgAvail); Chunks(offered) != chunks/2 {
		t.Errorf("%d chunks are offered that came later, want %d", Chunks(offered), chunks/2)
	}
}
