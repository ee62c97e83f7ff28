package mcast

import (
	"testing"

	"github.com/allcast/allcast/internal/place"
	"github.com/allcast/allcast/internal/step"
	"github.com/allcast/allcast/internal/wire"
)

// receiving is a leaf in its multicast phase and the chunks it is to receive.
type receiving struct {
	o     *Collective
	out   []step.Action
	chunk int
	psn   uint32
}

func newReceiving(t testing.TB, chunks int64, cfg Config) *receiving {
	t.Helper()
	const chunk = 4096
	cfg.Geometry, cfg.Rank, cfg.Pool = oneRound(t, broadcast(2, 0, chunks*chunk, chunk, 1)), 1, NewPool(1024, nil)
	cfg.Est = NewEstimator(Limits{LinkRate: 25, Alpha: 10 * step.Microsecond})
	r := &receiving{o: New(cfg), out: make([]step.Action, 0, 16), chunk: chunk}
	r.o.Step(1, step.Event{Kind: step.EvStart}, nil)
	r.o.Step(1, step.Event{Kind: step.EvMsg, Msg: &wire.Msg{
		Kind: wire.MsgBarrier, Round: 1, Grant: 1 << 40, Digest: r.o.g.Digest(),
	}}, nil)
	if r.o.Phase() != step.Multicast {
		t.Fatalf("phase %v", r.o.Phase())
	}
	return r
}

// next receives the next chunk.
func (r *receiving) next() {
	_, v, out := r.o.Chunk(step.Time(2+r.psn), 0, r.psn, r.chunk, r.out[:0])
	if v != Placed {
		panic("this was to be the next chunk")
	}
	r.out = out
	r.psn++
}

// Nothing on the receive path allocates, chunk by chunk.
func TestReceivePathDoesNotAllocate(t *testing.T) {
	// AllocsPerRun rounds down, so a run is many chunks; it makes one run more than asked.
	const chunks, runs = 100, 51 * 100
	check := func(name string, f func()) {
		t.Helper()
		n := testing.AllocsPerRun(50, func() {
			for range chunks {
				f()
			}
		})
		if n != 0 {
			t.Errorf("%s: %v allocations per %d chunks", name, n, chunks)
		}
	}
	g := oneRound(t, allgather(8, 4096*runs, 4096, 2, 1))
	l, report := mustLayout(t, 0), &Report{Runs: make([]PlacedRun, 0, MaxRuns)}
	in := NewIntake(l, 28, &place.Taken{}, func() *Report { return report })
	in.Open(5, newPlacement(g, 0, 7, 3, 9))
	psn, slots := uint32(0), make([]Slot, 8)
	take := func(psn uint32, length int) {
		if p, psn, _, v := in.Judge(5, 3, l.Imm(9, psn), length); v == Placed {
			in.Place(p, wire.Range{PSN: psn, N: 1})
		} else {
			in.Ignore(p, v, 1)
		}
		if in.Due() {
			r := in.Flush()
			*r = Report{Runs: r.Runs[:0]}
		}
	}
	check("Intake, one by one", func() {
		take(psn, 4096)
		psn++
	})
	check("Intake, duplicates", func() { take(3, 4096) })
	check("Intake, foreign", func() { take(3, 17) })
	check("Intake, super-packets", func() {
		if psn%8 != 0 {
			psn++
			return
		}
		_, n := in.Expect(slots)
		for i := range n {
			if !in.Fits(i, 5, l.Imm(9, psn+uint32(i))) {
				n = i
			}
		}
		in.Arrived(n)
		psn++
		if in.Due() {
			r := in.Flush()
			*r = Report{Runs: r.Runs[:0]}
		}
	})

	plain := newReceiving(t, 2*runs, Config{})
	check("Op.Chunk", func() { plain.next() })
	credit := newReceiving(t, 2*runs, Config{Flow: FlowCredit})
	check("Op.Chunk with credit", func() { credit.next() })
	check("Op.Chunk, foreign", func() { plain.o.Chunk(1, 0, 1<<30, 5, nil) })
	check("Op.Timer", func() { plain.o.Timer() })

	// Chunks that were asked for and come late, all but those that a read will place.
	late := newReceiving(t, 2*runs, Config{})
	late.o.Chunk(1, 0, 2*runs-1, late.chunk, nil)
	late.o.Step(late.o.Timer(), step.Event{Kind: step.EvTimer}, nil)
	check("Op.Chunk, late", func() { late.next() })

	b := NewBitmap(1 << 20)
	at := uint32(0)
	check("Bitmap", func() {
		b.Set(at)
		b.SetRange(at, 100)
		b.ClearRange(at, 50)
		at = b.NextClear(b.NextSet(0, b.n), b.n)
	})
	buf := make([]byte, 0, wire.MaxMsg)
	m := wire.Msg{Kind: wire.MsgFetch, Ranges: make([]wire.Range, 8)}
	check("AppendMsg", func() { buf = wire.AppendMsg(buf[:0], &m) })
	m = wire.Msg{Kind: wire.MsgGrantUp, Grant: 7}
	buf = wire.AppendMsg(buf[:0], &m)
	check("ParseMsg", func() {
		if _, err := wire.ParseMsg(buf); err != nil {
			t.Fatal(err)
		}
	})
}
