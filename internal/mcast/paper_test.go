package mcast

import (
	"slices"
	"testing"
	"unsafe"

	"github.com/allcast/allcast/internal/place"
	"github.com/allcast/allcast/internal/step"
	"github.com/allcast/allcast/internal/wire"
)

// The claims of the paper, as far as one Collective can show them. The simulator checks claims that need a
// network, times or counters of switches. docs/claims.md numbers the claims (C4, C5, C6) and the mistakes
// in the code of the authors.

func TestPaperSectionIIIA(t *testing.T) {
	t.Run("the root cuts its buffer into MTU-sized chunks", func(t *testing.T) {
		g := oneRound(t, broadcast(4, 0, 3*4096+100, 4096, 1))
		want := []int{4096, 4096, 4096, 100}
		if g.PSNs(0) != uint32(len(want)) {
			t.Fatalf("%d chunks, want %d", g.PSNs(0), len(want))
		}
		for psn, n := range want {
			if _, _, length := g.Locate(0, uint32(psn)); length != n {
				t.Errorf("chunk %d has %d bytes, want %d", psn, length, n)
			}
		}
	})
	t.Run("PSNs enumerate the chunks within the send buffer", func(t *testing.T) {
		g, sends := sendAll(t, broadcast(2, 0, 1000, 8, 1))
		next := uint32(0)
		for _, a := range sends {
			for i := range a.N {
				if _, at, _ := g.Locate(a.Stream, a.PSN+i); a.PSN+i != next || at != 8*int64(next) {
					t.Errorf("PSN %d is at %d of the send buffer, want PSN %d", a.PSN+i, at, next)
				}
				next++
			}
		}
		if next != 125 {
			t.Errorf("%d chunks were sent, want 125", next)
		}
	})
	t.Run("fragmentation is zero-copy: an action names the buffer's own bytes", func(t *testing.T) {
		// A Collective has no bytes at all; chunks are contiguous pieces of the send buffer,
		// and a batch is one contiguous piece.
		g, sends := sendAll(t, broadcast(2, 0, 1000, 8, 3))
		for _, a := range sends {
			_, first, _ := g.Locate(a.Stream, a.PSN)
			_, last, length := g.Locate(a.Stream, a.PSN+a.N-1)
			if _, span := g.Span(a.Stream, a.PSN, a.N); span != last+int64(length)-first {
				t.Errorf("%v is not contiguous", a)
			}
		}
	})
	t.Run("without drops the reliability layer is not involved", func(t *testing.T) {
		c := scripted(t, broadcast(8, 2, 1000, 16, 2), Config{}, func(int, int, uint32) bool { return false })
		for _, m := range c.ranks {
			if m.op.Stats() != (step.Stats{}) || m.op.Times().Fetch != 0 {
				t.Errorf("rank %d: %+v", m.rank, m.op.Stats())
			}
		}
	})
}

func TestPaperSectionIIIB(t *testing.T) {
	t.Run("out of order: the PSN determines the offset", func(t *testing.T) {
		g := oneRound(t, broadcast(2, 0, 80, 8, 1))
		r := track(g, 0, 1, false)
		for _, psn := range []uint32{7, 0, 9, 3, 1, 8, 2, 6, 5, 4} {
			if off, v := r.accept(psn, 8); v != Placed || off != 8*int64(psn) {
				t.Errorf("PSN %d: verdict %d at %d", psn, v, off)
			}
		}
		if r.missing != 0 {
			t.Errorf("%d missing", r.missing)
		}
	})
	t.Run("a dropped chunk does not shift those behind it", func(t *testing.T) {
		g := oneRound(t, broadcast(2, 0, 80, 8, 1))
		r := track(g, 0, 1, false)
		for psn := range uint32(10) {
			if psn == 4 {
				continue
			}
			if off, _ := r.accept(psn, 8); off != 8*int64(psn) {
				t.Errorf("PSN %d at %d", psn, off)
			}
		}
		if r.missing != 1 || r.NextMissing(0, 10) != 4 {
			t.Errorf("missing %d, the first is %d", r.missing, r.NextMissing(0, 10))
		}
	})
	t.Run("the buffer is released when all chunks are received", func(t *testing.T) {
		o := paperOp(t, broadcast(2, 0, 40, 8, 1), 1)
		hear(o, 0, wire.Msg{Kind: wire.MsgFinal})
		for psn := range uint32(5) {
			_, _, acts := o.Chunk(1, 0, psn, 8, nil)
			done := slices.ContainsFunc(acts, func(a step.Action) bool { return a.Kind == step.ActComplete })
			if done != (psn == 4) {
				t.Errorf("after chunk %d of 5: complete %v", psn+1, done)
			}
		}
	})
}

func TestPaperSectionIIID(t *testing.T) {
	// C4 and Section III-D: "the bitmap size that fits in the DPA LLC (1.5 MB) will
	// allow addressing the Allgather receive buffer of approximately 50 GB".
	t.Run("C4: 1.5 MB of bitmap address about 50 GB at 4 KiB", func(t *testing.T) {
		const chunks = 1_500_000 * 8
		if words := len(NewBitmap(chunks).words); words*8 > 1_500_000 {
			t.Errorf("%d chunks take %d bytes of bitmap", chunks, words*8)
		}
		if gb := float64(chunks) * 4096 / 1e9; gb < 45 || gb > 55 {
			t.Errorf("they are %.1f GB", gb)
		}
	})
	t.Run("C4: those chunks fit the default immediate in one round", func(t *testing.T) {
		if l := mustLayout(t, 0); l.Capacity() < 1_500_000*8 {
			t.Errorf("%d PSNs", l.Capacity())
		}
	})
	// A slip in the paper: it says 16 GB.
	t.Run("64 KiB of bitmap address 2 GiB at 4 KiB", func(t *testing.T) {
		chunks := uint32(2 << 30 / 4096)
		if words := len(NewBitmap(chunks).words); words*8 != 64<<10 {
			t.Errorf("2 GiB take %d bytes of bitmap", words*8)
		}
	})
	t.Run("C5: the ring needs two peers", func(t *testing.T) {
		o := paperOp(t, allgather(16, 8, 8, 1, 1), 5)
		if o.left != 4 || o.right != 6 {
			t.Errorf("left %d, right %d", o.left, o.right)
		}
	})
	t.Run("the bitmap is the only state that grows with the buffer", func(t *testing.T) {
		o := paperOp(t, broadcast(2, 0, 1<<30, 4096, 1), 1)
		a := &o.arrived[0]
		// One bit for each chunk in place, as in the paper, one for those claimed, one for reads,
		// and a generation for programs in the kernel.
		if got := place.Words(a.Len()) * int(unsafe.Sizeof(place.Word{})); got != 4*(1<<30/4096/8) {
			t.Errorf("%d bytes of bitmap", got)
		}
		f := &o.fetch.streams[0]
		for _, b := range []Bitmap{f.asked, f.offered, f.unread, f.requested, f.wanted} {
			if len(a.sent) != 1 || b.words != nil {
				t.Errorf("other state is there before anything was lost: %+v", a)
			}
		}
	})
}

// paperOp is a Collective that has left its barrier.
func paperOp(t *testing.T, s Shape, rank int) *Collective {
	t.Helper()
	o, _ := leaveBarrier(t, s, rank)
	return o
}

// leaveBarrier also returns the actions of the Collective until it has left its barrier.
func leaveBarrier(t *testing.T, s Shape, rank int) (o *Collective, acts []step.Action) {
	t.Helper()
	limits := Limits{Alpha: 10 * step.Microsecond, MinAlpha: 10 * step.Microsecond, MaxAlpha: step.Second}
	o = New(Config{Geometry: oneRound(t, s), Rank: rank, Est: NewEstimator(limits)})
	acts = o.Step(1, step.Event{Kind: step.EvStart}, nil)
	for o.Phase() == step.Barrier {
		round := o.bar.round
		m := wire.Msg{Kind: wire.MsgBarrier, Round: uint8(round), Digest: o.g.Digest()}
		acts = append(acts, hear(o, o.bar.peer(round), m)...)
	}
	return o, acts
}

// sendAll lets the root of a Broadcast send its whole block and returns its multicasts.
func sendAll(t *testing.T, s Shape) (g *Geometry, all []step.Action) {
	t.Helper()
	o, acts := leaveBarrier(t, s, s.Root)
	for len(acts) > 0 {
		var next []step.Action
		for _, a := range acts {
			if a.Kind == step.ActMulticast {
				all = append(all, a)
				next = o.Step(1, step.Event{Kind: step.EvSent, N: a.N}, next)
			}
		}
		acts = next
	}
	return o.g, all
}
