package inc

import (
	"testing"

	"github.com/allcast/allcast/internal/step"
	"github.com/allcast/allcast/internal/wire"
)

// FuzzOp feeds an Op arbitrary events. It must not panic, its actions must make sense, and its timer must not stand
// still.
func FuzzOp(f *testing.F) {
	f.Add([]byte{1, 4, 9, 16}, []byte{0, 1, 1, 9, 2, 2, 9, 3, 4, 9, 9, 9, 10, 1, 5, 6, 7, 8})
	f.Add([]byte{0, 2, 1, 1}, []byte{0, 2, 1, 9, 3, 3, 3, 7, 7, 7, 8, 8, 8, 5, 5, 5})
	f.Add([]byte{2, 3, 30, 3}, []byte{0, 1, 0, 9, 10, 0, 7, 1, 7, 2, 5, 1, 9, 9, 9, 9, 9, 9})
	f.Fuzz(func(t *testing.T, shape, b []byte) {
		if len(shape) < 4 {
			return
		}
		size := int(shape[1]%9) + 1
		r := &Reduction{Rank: int(shape[0]) % size, Size: size, Kind: wire.ReduceScatter, Chunk: 8}
		for i := range size {
			r.Counts = append(r.Counts, int64(shape[2]%64)*int64(i%3+1)*3)
		}
		now := step.Second
		o := New(Config{
			Reduction: r, Comm: 1, Seq: 2, Window: uint32(shape[3]) % 70, Batch: 3,
			Alpha:  func() step.Time { return step.Millisecond },
			Limits: Limits{Tries: 2, Silent: 20 * step.Millisecond},
		})
		fetches := []step.Action(nil)
		check := func(acts []step.Action) {
			for _, a := range acts {
				checkAction(t, o, &a)
				if a.Kind == step.ActFetch {
					fetches = append(fetches, a)
				}
			}
			if o.Timer() <= now || len(fetches) > o.maxFetches() {
				t.Fatalf("timer at %d, now %d; %d fetches", o.Timer(), now, len(fetches))
			}
			o.Missing(nil)
			if w := o.WaitingOn(); w < 0 || w >= size {
				t.Fatalf("waits for rank %d", w)
			}
		}
		next := func() (v byte) {
			if len(b) > 0 {
				v, b = b[0], b[1:]
			}
			return v
		}
		for len(b) > 0 {
			switch kind := next() % 13; kind {
			case 0:
				check(o.Step(now, step.Event{Kind: step.EvStart}, nil))
			case 1, 2, 3:
				m := wire.Msg{
					Kind: []wire.MsgKind{
						wire.MsgReady, wire.MsgIncGo, wire.MsgGrantUp, wire.MsgGrant, wire.MsgIncAsk, wire.MsgIncDown, wire.MsgSentUp,
						wire.MsgAllSent, wire.MsgFetch,
					}[next()%9],
					Digest: o.digest, Grant: uint64(next()) << (8 * (kind - 1)), Rank: uint32(next() % 10), Round: next() % 4,
					Ranges: []wire.Range{{PSN: uint32(next()), N: uint32(next()) << (12 * (kind - 1))}},
				}
				check(o.Step(now, step.Event{Kind: step.EvMsg, From: int(next()) % size, Msg: &m}, nil))
			case 4:
				check(o.Step(now, step.Event{Kind: step.EvSent, N: uint32(next() % 4)}, nil))
			case 5:
				if len(fetches) > 0 {
					q := fetches[0]
					fetches = fetches[1:]
					o.Record().Claim(q.PSN, q.N, func(i, n uint32) { o.Record().Finish(i, n) })
					check(o.Step(now, step.Event{Kind: step.EvFetched, Ranges: []wire.Range{{PSN: q.PSN, N: q.N}}}, nil))
				}
			case 6:
				check(o.Step(now, step.Event{Kind: step.EvFetched}, nil)) // nobody asked for it
			case 7, 8:
				if n := o.Record().Len(); n > 0 {
					if nth := uint32(next()) % n; o.Record().Take(nth) {
						o.Record().Finish(nth, 1)
					}
				}
				check(o.Summed(now, nil))
			case 9:
				if now = min(max(o.Timer(), now+1), now+step.Second); o.Timer() <= now {
					check(o.Step(now, step.Event{Kind: step.EvTimer}, nil))
				}
			case 10:
				now += step.Time(next()) * step.Millisecond
			case 11:
				check(o.Lost(now, nil))
			case 12:
				check(o.Wanted(now, uint32(next()), next()%4, nil))
			}
		}
	})
}

// checkAction checks that a driver can carry out an action.
func checkAction(t *testing.T, o *Op, a *step.Action) {
	t.Helper()
	switch a.Kind {
	case step.ActSend:
		b := wire.AppendMsg(nil, &a.Msg)
		if _, err := wire.ParseMsg(b); err != nil || a.To == o.red.Rank || a.To < 0 || a.To >= o.red.Size {
			t.Fatalf("sends %+v to rank %d: %v", a.Msg, a.To, err)
		}
	case step.ActReduce:
		if a.N == 0 || a.N > o.cfg.Batch || a.PSN+a.N > o.credit.all {
			t.Fatalf("sends places %d+%d with credit %d", a.PSN, a.N, o.credit.all)
		}
	case step.ActFetch:
		if a.N == 0 || a.PSN+a.N > o.chunks {
			t.Fatalf("fetches chunks %d+%d of %d", a.PSN, a.N, o.chunks)
		}
	case step.ActComplete, step.ActClosed:
		if o.Phase() != step.Closed || o.send.inFlight > 0 || o.repair.fetching > 0 {
			t.Fatalf("completes in phase %v", o.Phase())
		}
	default:
		t.Fatalf("action %d", a.Kind)
	}
}
