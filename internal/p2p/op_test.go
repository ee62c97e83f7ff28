package p2p_test

import (
	"testing"

	"github.com/allcast/allcast/internal/p2p"
	"github.com/allcast/allcast/internal/step"
	"github.com/allcast/allcast/internal/wire"
)

// solo is one rank's Executor without its peers.
type solo struct {
	*p2p.Executor
	in      *p2p.Inbox
	plan    *p2p.Plan
	acts    []step.Action
	applied []int // receives that were held until their turn
}

func newSolo(plan *p2p.Plan) *solo {
	return &solo{Executor: p2p.NewExecutor(p2p.Config{Plan: plan, Comm: 3, Seq: 7}), in: p2p.NewInbox(plan), plan: plan}
}

func (s *solo) start() { s.acts = s.Step(1, step.Event{Kind: step.EvStart}, s.acts) }

func (s *solo) ready(from int) {
	m := wire.Msg{Kind: wire.MsgReady, Comm: 3, Seq: 7, Digest: s.plan.DigestWith(from)}
	s.acts = s.Step(1, step.Event{Kind: step.EvMsg, From: from, Msg: &m}, s.acts)
}

// heard tells the Executor that what it handed over has left, until it hands over no more.
func (s *solo) heard() {
	told := 0
	for n := s.count(step.ActPut); n > told; n = s.count(step.ActPut) {
		s.acts = s.Step(1, step.Event{Kind: step.EvSent, N: uint32(n - told)}, s.acts)
		told = n
	}
}

func (s *solo) count(kind step.ActionKind) (n int) {
	for _, a := range s.acts {
		if a.Kind == kind {
			n++
		}
	}
	return n
}

// refuses fails the test if a piece is taken.
func (s *solo) refuses(t *testing.T, why string, from int, nth uint32, length int64) {
	t.Helper()
	before := s.in.Foreign()
	if i, r, _, ok := s.in.Take(from, nth, length); ok {
		t.Errorf("%v/%s rank %d, %s: piece %d of rank %d, %d long, is taken as %d, %+v",
			s.plan.Kind, s.plan.Algo, s.plan.Rank, why, nth, from, length, i, r)
	}
	if s.in.Foreign() != before+1 {
		t.Errorf("%v/%s rank %d, %s: not counted as foreign", s.plan.Kind, s.plan.Algo, s.plan.Rank, why)
	}
}

func (s *solo) takes(t *testing.T, from int, nth uint32, want p2p.Recv, wantHold bool) {
	t.Helper()
	acts, ok := deliver(s.Executor, s.in, 1, from, nth, want.Len, func(_ int, r *p2p.Recv, hold bool) {
		if *r != want || hold != wantHold {
			t.Fatalf("%v/%s rank %d: piece %d of rank %d is %+v, held %v; want %+v, %v",
				s.plan.Kind, s.plan.Algo, s.plan.Rank, nth, from, *r, hold, want, wantHold)
		}
	}, func(i int) { s.applied = append(s.applied, i) })
	if !ok {
		t.Fatalf("%v/%s rank %d: piece %d of rank %d is refused", s.plan.Kind, s.plan.Algo, s.plan.Rank, nth, from)
	}
	s.acts = append(s.acts, acts...)
}

// Data that does not belong is never taken: not from strangers, not a second time, not of another
// length, not after the end.
func TestWrongData(t *testing.T) {
	everyAlgorithm(t, func(x subject) {
		t, kind, algo := x.T, x.kind, x.algo
		const size = 11
		for rank := range size {
			c := call{algo, p2p.Spec{Kind: kind, Size: size, Root: 4, Segment: 3}}.sized(7)
			s := newSolo(c.plan(t, rank))
			recvs := s.plan.Recvs
			s.start()
			number := map[int32]uint32{}
			for _, r := range recvs {
				number[r.From]++
			}
			for from := range size {
				if n, ok := number[int32(from)]; ok {
					s.refuses(t, "a piece too many", from, n, 3)
				} else {
					s.refuses(t, "a stranger", from, 0, 3)
				}
				s.refuses(t, "far too many", from, 1<<32-1, 3)
				s.ready(from)
				s.ready(from) // twice does no harm
			}
			for _, from := range []int{-1, size, 1 << 20} {
				s.refuses(t, "no rank at all", from, 0, 3)
			}
			nth := map[int32]uint32{}
			for _, r := range recvs {
				n := nth[r.From]
				nth[r.From]++
				s.refuses(t, "too long", int(r.From), n, r.Len+1)
				s.refuses(t, "too short", int(r.From), n, r.Len-1)
				s.takes(t, int(r.From), n, r, false)
				s.refuses(t, "a duplicate", int(r.From), n, r.Len)
			}
			s.heard()
			if s.Phase() != step.Closed || s.count(step.ActComplete) != 1 || s.count(step.ActClosed) != 1 {
				t.Fatalf("%v: rank %d is %v, it misses %s", c, rank, s.Phase(), s.Missing(nil))
			}
			if n := s.count(step.ActPut); n != len(s.plan.Sends) {
				t.Errorf("%v: rank %d sent %d pieces, want %d", c, rank, n, len(s.plan.Sends))
			}
			for _, r := range recvs {
				s.refuses(t, "after the end", int(r.From), 0, r.Len)
			}
		}
	})
}

// A number that is a rank only in its lower 32 bits is no rank.
func TestDataFromNoRank(t *testing.T) {
	s := newSolo(call{"ring", p2p.Spec{Kind: p2p.Allgather, Size: 4}}.sized(10).plan(t, 1))
	s.start()
	s.refuses(t, "no rank at all", 1<<32, 0, 10)
}

// An Executor that failed takes nothing and does nothing more.
func TestFailedOp(t *testing.T) {
	everyAlgorithm(t, func(x subject) {
		t, kind, algo := x.T, x.kind, x.algo
		c := call{algo, p2p.Spec{Kind: kind, Size: 5}}.sized(10)
		s := newSolo(c.plan(t, 1))
		s.start()
		s.Fail()
		s.acts = nil
		for from := range 5 {
			s.ready(from)
		}
		for i := range s.plan.Recvs {
			s.acts = s.Received(2, i+1, len(s.plan.Recvs)-i-1, s.acts)
		}
		if s.Phase() != step.Failed || len(s.acts) > 0 {
			t.Errorf("%v: a failed Op is %v and does %v", c, s.Phase(), s.acts)
		}
	})
}

// A rank tells those it receives from that it is ready, each once, with enough
// to find a mismatch (it may tell those it sends to as well, so that they find
// one); and sends to nobody who has not said so.
func TestReady(t *testing.T) {
	everyAlgorithm(t, func(x subject) {
		t, kind, algo := x.T, x.kind, x.algo
		c := call{algo, p2p.Spec{Kind: kind, Size: 9, Segment: 3}}.sized(10)
		for rank := range c.Size {
			s := newSolo(c.plan(t, rank))
			for from := range c.Size {
				if from%2 == 0 {
					s.ready(from) // may come before our own start
				}
			}
			if len(s.acts) > 0 || s.Phase() != step.Queued {
				t.Fatalf("%v: rank %d does %v before its start", c, rank, s.acts)
			}
			s.start()
			checkReady(t, c, s)
		}
	})
}

func checkReady(t *testing.T, c call, s *solo) {
	t.Helper()
	peer, told := map[int]bool{}, map[int]bool{}
	for _, snd := range s.plan.Sends {
		peer[int(snd.To)] = true
	}
	for _, r := range s.plan.Recvs {
		peer[int(r.From)] = true
	}
	for _, a := range s.acts {
		switch a.Kind {
		case step.ActSend:
			m := a.Msg
			if !peer[a.To] || told[a.To] || m.Kind != wire.MsgReady || m.Comm != 3 || m.Seq != 7 ||
				m.Digest != s.plan.DigestWith(a.To) || m.Call.Kind != c.Kind ||
				!c.Kind.Private() && m.Call.Bytes != uint64(s.plan.Bytes) {
				t.Errorf("%v: rank %d tells rank %d %+v", c, s.plan.Rank, a.To, m)
			}
			told[a.To] = true
		case step.ActPut:
			if a.To%2 != 0 {
				t.Errorf("%v: rank %d sends to rank %d, which is not ready", c, s.plan.Rank, a.To)
			}
		}
	}
	for _, r := range s.plan.Recvs {
		if !told[int(r.From)] {
			t.Errorf("%v: rank %d does not tell rank %d that it is ready", c, s.plan.Rank, r.From)
		}
	}
}

// Messages of other kinds, and of other operations' Executors, are nothing to us.
func TestOtherMessages(t *testing.T) {
	s := newSolo(call{"linear", p2p.Spec{Kind: p2p.Allgather, Size: 4}}.sized(10).plan(t, 1))
	s.start()
	s.acts = nil
	for kind := range wire.MsgKind(64) {
		if kind == wire.MsgReady {
			continue
		}
		m := wire.Msg{Kind: kind, Digest: s.plan.Digest}
		s.acts = s.Step(2, step.Event{Kind: step.EvMsg, From: 2, Msg: &m}, s.acts)
	}
	for _, kind := range []step.EventKind{step.EvRead, step.EvTimer} {
		s.acts = s.Step(2, step.Event{Kind: kind}, s.acts)
	}
	if len(s.acts) > 0 || s.Phase() != step.Transfer || s.Timer() != step.Never {
		t.Errorf("the Op does %v and is %v", s.acts, s.Phase())
	}
}
