package node

import (
	"encoding/binary"
	"errors"
	"testing"

	"github.com/allcast/allcast/internal/clustertest"
	"github.com/allcast/allcast/internal/inc"
	"github.com/allcast/allcast/internal/mcast"
	"github.com/allcast/allcast/internal/p2p"
	"github.com/allcast/allcast/internal/step"
	"github.com/allcast/allcast/internal/wire"
)

// FuzzNode gives a node messages, datagrams and events that no correct peer sends, in any order, while its
// driver does its part. Each call ends exactly once, at the latest when its communicator is aborted, and
// all room is returned.
func FuzzNode(f *testing.F) {
	barrier := wire.Msg{Kind: wire.MsgBarrier, Digest: fuzzPlan(f)[0].Digest(), Round: 1, Grant: 9}
	var seed []byte
	for _, m := range []wire.Msg{
		barrier,
		{Kind: wire.MsgDead, Rank: 2},
		{Kind: wire.MsgAbort, Rank: 7, Reason: 77},
		{Kind: wire.MsgWaitState, State: waiting, Rank: 1},
		{Kind: wire.MsgProbeWait, Seq: 3},
		{Kind: wire.MsgFinal},
		{Kind: wire.MsgAllSent},
		{Kind: wire.MsgFetch, Ranges: []wire.Range{{PSN: 1, N: 2}}},
		{Kind: wire.MsgAvail, Ranges: []wire.Range{{PSN: 1, N: 2}}},
		{Kind: wire.MsgMark, Rank: 1, Counts: []uint32{1}},
		{Kind: wire.MsgReady, Digest: fuzzRing(f, 3).Digest},
		{Kind: wire.MsgAgree, Agree: &wire.Agree{Step: wire.AgreeAsk, Dead: []uint64{4}}},
		{Kind: wire.MsgAgree, Comm: 1, Agree: &wire.Agree{Step: wire.AgreeState, Called: true, Dead: []uint64{1}}},
		{Kind: wire.MsgAgree, Agree: &wire.Agree{Step: wire.AgreeGone}},
		{Kind: wire.MsgAgree, Agree: &wire.Agree{Step: wire.AgreePropose, Value: &wire.AgreeValue{
			ID: 9, Ranks: []uint64{15},
		}}},
		{Kind: wire.MsgAgree, Agree: &wire.Agree{Step: wire.AgreeCommit, Value: &wire.AgreeValue{
			ID: 1, Ranks: []uint64{255},
		}}},
		{Kind: wire.MsgAgree, Agree: &wire.Agree{Step: wire.AgreeCommit, Value: &wire.AgreeValue{ID: 1, Ranks: []uint64{9}}}},
		{Kind: wire.MsgAbort, Reason: 4, Pair: &wire.CallPair{Ranks: [2]uint32{1, 9}}},
		{Kind: wire.MsgOffer, Seq: wire.MailKey(2, 1), Tag: 1, Bytes: 9, Flag: true},
		{Kind: wire.MsgOffer, Seq: wire.MailKey(2, 2), Tag: 1, Bytes: EagerMail + 1},
		{Kind: wire.MsgAccept, Seq: wire.MailKey(3, 1)},
		{Kind: wire.MsgDiscard, Seq: wire.MailKey(3, 1)},
		{Kind: wire.MsgWithdraw, Seq: wire.MailKey(2, 2)},
		{Kind: wire.MsgWithdrawn, Seq: wire.MailKey(3, 1)},
		{Kind: wire.MsgCredit, Bytes: 300},
		{Kind: wire.MsgReady, Seq: wire.MailKey(3, 1)},
		{Kind: wire.MsgProbeWait, Seq: wire.MailKey(2, 0)},
	} {
		b := wire.AppendMsg(nil, &m)
		one := append([]byte{0, 2, byte(len(b))}, b...)
		f.Add(append(append([]byte{5, 6}, one...), 6, 2, 200, 2, 200, 6))
		f.Add(append(append([]byte{7, 6}, one...), 6, 9, 2, 0, 0, 0, 5, 6, 9, 2, 0, 0, 1, 5, 6))
		f.Add(append(append([]byte{11, 5, 11, 6}, one...), 6, 3, 0, 3, 1, 2, 200, 6))
		f.Add(append(append([]byte{8, 8, 6}, one...), 6, 10, 0, 0, 8, 4, 6))
		f.Add(append(append([]byte{12, 2, 1, 255, 13, 2, 1, 9, 6}, one...), 6, 15, 2, 0, 2, 1, 9, 14, 1, 6))
		f.Add(append(append([]byte{13, 255, 1, 200}, one...), 14, 0, 6, 13, 2, 1, 200, 15, 2, 0, 2, 2, 9, 6))
		seed = append(append(seed, one...), 6)
	}
	f.Add(append([]byte{5, 5}, seed...))
	f.Add([]byte{5, 1, 0, 0, 0, 0, 0, 0, 4, 2, 255, 3, 0, 4, 0, 6})
	f.Fuzz(func(t *testing.T, in []byte) {
		z := newFuzzed(t)
		for len(in) > 0 {
			in = z.step(in[0], in[1:])
			z.act()
		}
		z.end()
	})
}

func fuzzPlan(t clustertest.TB) []*mcast.Geometry {
	plan, err := mcast.Plan(allgather(4, 10, 4), testConfig().Layout)
	if err != nil {
		t.Fatalf("%v", err)
	}
	return plan
}

// fuzzed is a node and a minimal driver.
type fuzzed struct {
	t       *testing.T
	n       *Node
	now     step.Time
	plan    []*mcast.Geometry
	started uint64
	asked   uint64 // agreements
	ended   map[uint64]int
	todo    []Action // Open, Multicast, Read, Put, Contribute, Fetch, Quiesce, Closed
	workers intakes
	open    map[opKey]Action
}

func newFuzzed(t *testing.T) *fuzzed {
	t.Helper()
	cfg := psnBits(testConfig(), 30)
	cfg.Rank, cfg.Size, cfg.Flow, cfg.Room, cfg.Deadline = 3, 4, mcast.FlowCredit, 4, 3*ms
	z := &fuzzed{
		t: t, n: New(0, cfg), plan: fuzzPlan(t), ended: map[uint64]int{}, workers: newIntakes(cfg), open: map[opKey]Action{},
	}
	for id, members := range [][]int{{0, 1, 2, 3}, {3, 1, 0, 2}} {
		if err := z.n.AddComm(uint32(id), members); err != nil {
			t.Fatal(err)
		}
	}
	return z
}

// step takes the next event from the input and returns the rest of the input.
func (z *fuzzed) step(what byte, in []byte) []byte {
	arg := make([]byte, 7)
	switch what % 16 {
	case 0:
		n := copy(arg[:2], in)
		in = in[n:]
		length := min(int(arg[1]), len(in))
		if m, err := wire.ParseMsg(in[:length]); err == nil {
			z.n.Message(z.now, int(arg[0]%3), &m)
		}
		return in[length:]
	case 1:
		n := copy(arg, in)
		z.workers.take(uint32(arg[0]%3), int(arg[1]), binary.LittleEndian.Uint32(arg[2:]), int(arg[6]), nil)
		if r := z.workers.sub(int(arg[1])).Flush(); r != nil {
			z.n.Received(z.now, r, arg[0]&4 != 0)
		}
		return in[n:]
	case 2:
		n := copy(arg[:1], in)
		z.now += step.Time(arg[0]) * 20 * us
		if z.now >= z.n.NextTimer() {
			z.n.Timer(z.now)
		}
		return in[n:]
	case 3:
		n := copy(arg[:1], in)
		z.n.PeerLost(z.now, int(arg[0]%3))
		return in[n:]
	case 4:
		n := copy(arg[:1], in)
		z.abort(uint32(arg[0] % 2))
		return in[n:]
	case 5:
		if err := z.n.Start(z.now, uint32(z.started%2), z.started, z.plan); err != nil {
			z.t.Fatal(err)
		}
		z.started++
	case 7, 8:
		z.startOther(what%16 == 8)
	case 11:
		z.asked++
		if err := z.n.Agree(z.now, uint32(z.asked%2), 1000+z.asked, uint32(5000+z.asked)); err != nil {
			z.t.Fatal(err)
		}
	case 9:
		n := copy(arg[:5], in)
		z.piece(int(int8(arg[0])), opKey{uint32(arg[1] % 3), uint64(arg[2])}, uint32(arg[3]), int64(arg[4]))
		return in[n:]
	case 12, 13:
		n := copy(arg[:3], in)
		z.startMail(what%16 == 12, int(int8(arg[0])), uint64(arg[1]%4), int64(arg[2])*300)
		return in[n:]
	case 14:
		n := copy(arg[:1], in)
		if req := uint64(arg[0]); !z.n.Withdraw(uint32(req%2), req) {
			z.abort(uint32(req % 2))
		}
		return in[n:]
	case 15:
		n := copy(arg[:5], in)
		key := opKey{uint32(arg[1] % 3), wire.MailKey(int(arg[2]%5), uint64(arg[3]))}
		z.piece(int(int8(arg[0])), key, 0, int64(arg[4])*300)
		return in[n:]
	case 10:
		n := copy(arg[:4], in)
		z.sum(opKey{uint32(arg[0] % 3), uint64(arg[1])}, arg[2], arg[3])
		return in[n:]
	default:
		z.carryOut()
	}
	return in
}

// fuzzRing is a plan of four ranks.
func fuzzRing(t clustertest.TB, rank int) *p2p.Plan {
	p, err := p2p.New("ring", p2p.Spec{Kind: p2p.Allreduce, Rank: rank, Size: 4, Bytes: 20})
	if err != nil {
		t.Fatalf("%v", err)
	}
	return p
}

// startOther begins a call that does not multicast: a plan, or a reduction.
func (z *fuzzed) startOther(reduction bool) {
	comm := uint32(z.started % 2)
	rank := z.n.comms[comm].rank
	err := z.n.StartPlan(z.now, comm, z.started, fuzzRing(z.t, rank))
	if reduction {
		z.started++
		err = errors.Join(err, z.n.StartReduction(z.now, comm, z.started, &inc.Reduction{
			Kind: p2p.ReduceScatter, Rank: rank, Size: 4, Counts: []int64{16, 16, 16, 16}, Chunk: 8,
		}, nil))
	}
	if err != nil {
		z.t.Fatal(err)
	}
	z.started++
}

// startMail begins a Send or a Recv, unless its arguments are bad.
func (z *fuzzed) startMail(send bool, peer int, tag uint64, bytes int64) {
	start := z.n.StartRecv
	if send {
		start = z.n.StartSend
	}
	if err := start(z.now, uint32(z.started%2), z.started, peer, tag, bytes); err == nil {
		z.started++
	} else if !errors.Is(err, ErrMail) {
		z.t.Fatal(err)
	}
}

func (z *fuzzed) abort(comm uint32) {
	if err := z.n.Abort(comm); err != nil {
		z.t.Fatal(err)
	}
}

func (z *fuzzed) act() {
	for acts := z.n.Actions(); len(acts) > 0; acts = z.n.Actions() {
		for _, a := range acts {
			switch a.Kind {
			case Settled:
				if z.ended[a.Req]++; z.ended[a.Req] > 1 || a.Req <= 1000 {
					z.t.Fatalf("agreement %d ended again: %+v", a.Req, *a.Agreed)
				}
			case Done:
				if z.ended[a.Req]++; z.ended[a.Req] > 1 {
					z.t.Fatalf("request %d ended again: %v", a.Req, a.Err)
				}
			case Open:
				z.workers.open(a.Placements)
				z.open[opKey{a.Comm, a.Seq}] = a
				z.todo = append(z.todo, a)
			case Release:
				z.forget(opKey{a.Comm, a.Seq})
			case Quiesce:
				z.forget(opKey{a.Comm, a.Seq})
				z.todo = append(z.todo, a)
			case Multicast, Read, Put, Contribute, Fetch, Closed:
				z.todo = append(z.todo, a)
			}
		}
	}
}

func (z *fuzzed) carryOut() {
	todo := z.todo
	z.todo = nil
	for _, a := range todo {
		key := opKey{a.Comm, a.Seq}
		open, isOpen := z.open[key]
		switch a.Kind {
		case Open:
			z.n.Opened(z.now, a.Comm, a.Seq, a.Seq%2 == 1)
		case Multicast, Contribute:
			z.n.Sent(z.now, a.Comm, a.Seq, a.N)
		case Fetch:
			if isOpen {
				open.Record.Claim(a.PSN, a.N, func(i, n uint32) { open.Record.Finish(i, n) })
				z.n.Fetched(z.now, a.Comm, a.Seq, a.PSN, a.N)
			}
		case Put:
			z.n.Sent(z.now, a.Comm, a.Seq, 1)
		case Read:
			if isOpen {
				p := open.Placements[a.Stream]
				won, _ := z.workers.sub(a.Stream).Claim(p, a.Ranges, nil)
				for _, q := range won {
					p.Finish(q.PSN, q.N)
				}
				z.n.ReadDone(z.now, a.Comm, a.Seq, a.Stream, won)
			}
		case Quiesce:
			z.n.Quiesced(a.Comm, a.Seq)
		case Closed:
			z.n.Drained(z.now, a.Comm, a.Seq)
		}
		z.act()
	}
}

func (z *fuzzed) forget(key opKey) {
	z.workers.close(z.open[key].Placements)
	delete(z.open, key)
}

// sum is a sum that has arrived from an aggregator, or a change of the aggregators.
func (z *fuzzed) sum(key opKey, chunk, state byte) {
	if open, isOpen := z.open[key]; isOpen && open.Record != nil && uint32(chunk) < open.Record.Len() {
		if open.Record.Take(uint32(chunk)) {
			open.Record.Finish(uint32(chunk), 1)
		}
	}
	z.n.Summed(z.now, key.comm, key.seq)
	if state%4 == 0 {
		z.n.SetAggregation(z.now, inc.Aggregation{Window: uint32(state / 4 % 3)})
	}
}

// piece is a put of a peer that has arrived.
func (z *fuzzed) piece(from int, key opKey, nth uint32, length int64) {
	z.n.Early(from, key.comm, key.seq, length)
	in := z.open[key].Inbox
	if in == nil {
		return
	}
	rank, member := z.n.comms[key.comm].rankOf(from)
	if !member {
		rank = from
	}
	if i, _, _, ok := in.Take(rank, nth, length); ok {
		in.Arrived(i)
		for i := in.Next(); i >= 0; i = in.Next() {
			in.Arrived(i)
		}
	}
	prefix, left := in.Progress()
	z.n.Pieces(z.now, from, key.comm, key.seq, prefix, left)
}

func (z *fuzzed) end() {
	z.abort(0)
	z.abort(1)
	z.act()
	z.carryOut()
	for req := range z.started {
		if z.ended[req] != 1 {
			z.t.Fatalf("request %d ended %d times", req, z.ended[req])
		}
	}
	if n := z.n.pool.Lent(); n != 0 {
		z.t.Fatalf("%d places did not come back", n)
	}
	if n := z.n.others.InFlight(); n != 0 {
		z.t.Fatalf("%d operations are counted that have ended", n)
	}
	for _, c := range z.n.order {
		if b := &c.mail; len(b.calls.all) > 0 {
			z.t.Fatalf("%d sends and receives have not ended", len(b.calls.all))
		}
		for r, p := range c.mail.peers {
			if p.credit < 0 || p.kept < 0 || p.ahead < 0 || p.ahead > MailCredit || p.kept > MailCredit {
				z.t.Fatalf("the account with rank %d is wrong: %+v", r, *p)
			}
		}
	}
}
