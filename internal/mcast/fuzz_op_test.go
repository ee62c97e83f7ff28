package mcast

import (
	"slices"
	"testing"

	"github.com/allcast/allcast/internal/step"
	"github.com/allcast/allcast/internal/wire"
)

// victim is a Collective whose peers may say anything, and its driver, which keeps to
// the contract.
type victim struct {
	t        *testing.T
	o        *Collective
	now      step.Time
	started  bool
	complete bool
	closed   bool
	handed   uint32 // to the fabric
	told     uint32
	reads    []step.Action
	out      [][]bool // [subgroup][PSN]: multicast
	placed   [][]bool
	reading  [][]bool
}

func newVictim(t *testing.T, g *Geometry, rank int, cfg Config) *victim {
	t.Helper()
	cfg.Geometry, cfg.Rank, cfg.Comm, cfg.Seq = g, rank, 3, 9
	v := &victim{t: t, o: New(cfg), now: 1}
	for sub := range g.Streams() {
		placed := make([]bool, g.PSNs(sub))
		psn, n := g.Block(sub, rank)
		for i := range n {
			placed[psn+i] = true
		}
		v.placed = append(v.placed, placed)
		v.out = append(v.out, make([]bool, g.PSNs(sub)))
		v.reading = append(v.reading, make([]bool, g.PSNs(sub)))
	}
	return v
}

func (v *victim) step(ev step.Event) { v.do(v.o.Step(v.now, ev, nil)) }

func (v *victim) do(acts []step.Action) {
	for i := range acts {
		a := &acts[i]
		if v.closed {
			v.t.Fatalf("an action after the last: %+v", *a)
		}
		checkRange(v.t, v.o, a)
		switch a.Kind {
		case step.ActMulticast:
			if v.complete || v.o.phase < step.Multicast {
				v.t.Fatalf("it multicasts in phase %v", v.o.phase)
			}
			v.handed += a.N
			v.mark(v.out[a.Stream], a.Stream, wire.Range{PSN: a.PSN, N: a.N}, "multicasts")
		case step.ActRead:
			for _, q := range a.Ranges {
				if v.complete || slices.Contains(v.placed[a.Stream][q.PSN:q.PSN+q.N], true) {
					v.t.Fatalf("it reads what it has: %+v", *a)
				}
				v.mark(v.reading[a.Stream], a.Stream, q, "reads")
			}
			a.Ranges = v.o.claim(a)
			if v.reads = append(v.reads, *a); len(v.reads) > MaxReads {
				v.t.Fatalf("%d reads in progress", len(v.reads))
			}
		case step.ActComplete:
			for sub := range v.placed {
				if slices.Contains(v.placed[sub], false) {
					v.t.Fatalf("it completes and misses something of subgroup %d", sub)
				}
			}
			if v.complete || v.handed != v.told || v.told != v.o.snd.total || len(v.reads) > 0 {
				v.t.Fatalf("it completes: again %v, %d of %d told of, %d reads in progress",
					v.complete, v.told, v.o.snd.total, len(v.reads))
			}
			v.complete = true
		case step.ActClosed:
			v.closed = true
		}
	}
}

func (v *victim) mark(bits []bool, sub int, q wire.Range, verb string) {
	for psn := q.PSN; psn < q.PSN+q.N; psn++ {
		if bits[psn] {
			v.t.Fatalf("it %s PSN %d of subgroup %d twice", verb, psn, sub)
		}
		bits[psn] = true
	}
}

func (v *victim) chunk(sub int, psn uint32, length int) {
	off, verdict, acts := v.o.Chunk(v.now, sub, psn, length, nil)
	if verdict == Placed {
		want, _, long := v.o.g.Locate(sub, psn)
		if off != want || length != long || v.placed[sub][psn] || v.reading[sub][psn] {
			v.t.Fatalf("PSN %d of subgroup %d, %d bytes, placed at %d", psn, sub, length, off)
		}
		v.placed[sub][psn] = true
	}
	v.do(acts)
}

// readEnds ends the i-th read in progress.
func (v *victim) readEnds(i int) {
	a := v.reads[i]
	v.reads = append(v.reads[:i], v.reads[i+1:]...)
	for _, q := range a.Ranges {
		for psn := q.PSN; psn < q.PSN+q.N; psn++ {
			v.placed[a.Stream][psn], v.reading[a.Stream][psn] = true, false
		}
	}
	v.do(v.o.readDone(v.now, a.Stream, a.Ranges))
}

// msg is a message that a peer might send, with values that are nearly right.
func (t *tape) msg(g *Geometry) wire.Msg {
	m := wire.Msg{Kind: wire.MsgKind(1 + t.below(int(wire.MsgReady))), Comm: 3, Seq: 9, Digest: g.Digest()}
	m.Round, m.Grant, m.Stream = uint8(t.below(8)), uint64(t.u8()), uint16(t.below(g.Streams()+1))
	switch t.below(16) {
	case 0:
		m.Digest++
	case 1:
		m.Grant = t.u64()
	case 2:
		m.Round = t.u8()
	}
	m.Rank, m.Flag = uint32(t.below(g.Size()+2)), t.below(2) == 0
	for range t.below(4) {
		q := wire.Range{PSN: uint32(t.u8()), N: uint32(t.below(70))}
		if t.below(32) == 0 {
			q = wire.Range{PSN: t.u32(), N: t.u32()}
		}
		m.Ranges = append(m.Ranges, q)
	}
	for range g.Subgroups() {
		m.Counts = append(m.Counts, uint32(t.u8()))
	}
	if t.below(32) == 0 {
		m.Counts = append(m.Counts, t.u32())
	}
	return m
}

// event lets the tape decide what happens next.
func (v *victim) event(in *tape) {
	g := v.o.g
	from, what := in.below(g.Size()), in.below(10)
	if from == v.o.rank && what >= 1 && what <= 4 {
		return // no rank has a connection to itself
	}
	switch what {
	case 0:
		if !v.started {
			v.started = true
			v.step(step.Event{Kind: step.EvStart})
		}
	case 1, 2, 3:
		m := in.msg(g)
		v.step(step.Event{Kind: step.EvMsg, From: from, Msg: &m})
	case 4:
		if m, err := wire.ParseMsg(in.take(in.below(64))); err == nil {
			v.step(step.Event{Kind: step.EvMsg, From: from, Msg: &m})
		}
	case 5:
		v.chunk(in.below(g.Streams()+1), in.u32(), int(in.u8()))
	case 6:
		sub := in.below(g.Streams())
		if psn := uint32(in.u16()); psn < g.PSNs(sub) {
			_, _, length := g.Locate(sub, psn)
			v.chunk(sub, psn, length)
		}
	case 7:
		if n := v.handed - v.told; n > 0 {
			n = 1 + uint32(in.u8())%n
			v.told += n
			v.step(step.Event{Kind: step.EvSent, N: n})
		}
	case 8:
		if len(v.reads) > 0 {
			v.readEnds(in.below(min(256, len(v.reads))))
		}
	case 9:
		if at := v.o.Timer(); at != step.Never && in.below(2) == 0 {
			v.now = max(v.now, at)
		} else {
			v.now += step.Time(in.u16())
		}
		v.step(step.Event{Kind: step.EvTimer})
	}
}

// Whatever peers say and whatever arrives, a Collective does not panic, asks its driver
// only for what can be done, multicasts nothing twice or before the barrier, and
// does not complete before it has everything.
func FuzzOpMessages(f *testing.F) {
	for _, b := range shapeSeeds {
		for _, kind := range []byte{0, 1, 2} {
			f.Add(b, []byte{
				kind, 0, 3, 4, 0, 0, 0, 1, 1, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 6, 0, 0, 0, 0, 9, 0, 0, 8, 1, 7, 1, 1,
			})
		}
	}
	f.Fuzz(func(t *testing.T, shape, events []byte) {
		in := tape(shape)
		s, psnBits := in.shape(9)
		plan, err := Plan(legal(s), mustLayout(t, psnBits))
		if err != nil {
			t.Skip("no such shape")
		}
		g := plan[in.below(len(plan))]
		ev := tape(events)
		pool := NewPool(uint64(ev.below(40)), nil)
		cfg := Config{
			Flow: Flow(ev.below(2)), Pool: pool, Batch: uint32(ev.below(4)),
			Est: NewEstimator(Limits{LinkRate: float64(ev.below(3))}),
		}
		v := newVictim(t, g, ev.below(g.Size()), cfg)
		if how := ev.below(4); how > 0 {
			v.started = true
			v.step(step.Event{Kind: step.EvStart})
			// Mostly the barrier goes well: there is more to see behind it.
			for bar := &v.o.bar; how > 1 && v.o.phase == step.Barrier; {
				m := wire.Msg{Kind: wire.MsgBarrier, Round: uint8(bar.round), Grant: uint64(ev.below(40)), Digest: g.Digest()}
				v.step(step.Event{Kind: step.EvMsg, From: bar.peer(bar.round), Msg: &m})
			}
		}
		for len(ev) > 0 {
			v.event(&ev)
		}
		v.o.Fail()
		if pool.Lent() != 0 || pool.ops != 0 {
			t.Fatalf("%d places are still lent, to %d operations", pool.Lent(), pool.ops)
		}
		v.o.Missing(nil)
		if w := v.o.WaitingOn(); w < 0 || w >= g.Size() {
			t.Fatalf("it waits for rank %d", w)
		}
	})
}
