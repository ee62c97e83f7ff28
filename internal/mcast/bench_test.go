package mcast

import (
	"fmt"
	"testing"

	"github.com/allcast/allcast/internal/place"
	"github.com/allcast/allcast/internal/step"
	"github.com/allcast/allcast/internal/wire"
)

// BenchmarkIntake measures what a datagram costs a receive worker, without the copy of its payload: one
// by one, and eight at a time where they were expected.
func BenchmarkIntake(b *testing.B) {
	for name, s := range map[string]Shape{
		"broadcast":  broadcast(8, 0, 4096<<16, 4096, 1),
		"allgather":  allgather(64, 4096<<10, 4096, 4, 1),
		"allgatherv": unequal(64, 4096<<10),
	} {
		for _, batch := range []int{1, 8} {
			b.Run(fmt.Sprintf("%s/%d", name, batch), func(b *testing.B) { benchIntake(b, oneRound(b, s), batch) })
		}
	}
}

func benchIntake(b *testing.B, g *Geometry, batch int) {
	b.Helper()
	l, report := mustLayout(b, 0), &Report{Runs: make([]PlacedRun, 0, MaxRuns)}
	n := g.PSNs(0) / uint32(batch) * uint32(batch)
	slots := make([]Slot, batch)
	var in *Intake
	b.ReportAllocs()
	b.SetBytes(4096)
	for i := 0; b.Loop(); i++ {
		psn := uint32(i) % n
		if psn == 0 {
			b.StopTimer()
			in = NewIntake(l, 28, &place.Taken{}, func() *Report { return report })
			in.Open(5, newPlacement(g, 0, 7, 3, 9))
			b.StartTimer()
		}
		if psn%uint32(batch) == 0 {
			if k := expected(in, l, slots, psn); k < batch {
				// Our own, or the first: one by one.
				for j := k; j < batch; j++ {
					if p, psn, _, v := in.Judge(5, 3, l.Imm(9, psn+uint32(j)), 4096); v == Placed {
						in.Place(p, wire.Range{PSN: psn, N: 1})
					}
				}
			}
			if in.Due() {
				r := in.Flush()
				*r = Report{Runs: r.Runs[:0]}
			}
		}
	}
}

// expected lets datagrams from psn on arrive where they are expected, and returns how many did.
func expected(in *Intake, l wire.Layout, slots []Slot, psn uint32) int {
	if len(slots) == 1 {
		return 0
	}
	_, n := in.Expect(slots)
	for i := range n {
		if !in.Fits(i, 5, l.Imm(9, psn+uint32(i))) {
			n = i
			break
		}
	}
	in.Arrived(n)
	return n
}

func unequal(p int, bytes int64) Shape {
	s := allgather(p, bytes, 4096, 4, 1)
	for i := range s.Counts {
		s.Counts[i] += 4096 * int64(i)
	}
	return s
}

func BenchmarkOpChunk(b *testing.B) {
	for _, flow := range []Flow{FlowNone, FlowCredit} {
		b.Run(flow.String(), func(b *testing.B) {
			const chunks = 1 << 16
			var r *receiving
			b.ReportAllocs()
			b.SetBytes(4096)
			for i := 0; b.Loop(); i++ {
				if i%chunks == 0 {
					b.StopTimer()
					r = newReceiving(b, chunks, Config{Flow: flow})
					b.StartTimer()
				}
				r.next()
			}
		})
	}
}

func BenchmarkOpSend(b *testing.B) {
	const chunks = 1 << 16
	g := oneRound(b, broadcast(2, 0, 4096*chunks, 4096, 4))
	out := make([]step.Action, 0, 64)
	var o *Collective
	left := 0
	b.ReportAllocs()
	b.SetBytes(4096)
	for b.Loop() {
		if left == 0 {
			b.StopTimer()
			left = chunks
			o = New(Config{Geometry: g, Est: NewEstimator(Limits{})})
			o.Step(1, step.Event{Kind: step.EvStart}, nil)
			o.Step(1, step.Event{Kind: step.EvMsg, From: 1, Msg: &wire.Msg{
				Kind: wire.MsgBarrier, Round: 1, Digest: g.Digest(),
			}}, nil)
			b.StartTimer()
		}
		left--
		out = o.Step(1, step.Event{Kind: step.EvSent, N: 1}, out[:0])
	}
}

func BenchmarkBitmap(b *testing.B) {
	const n = 1 << 20
	m := NewBitmap(n)
	b.Run("Set", func(b *testing.B) {
		b.ReportAllocs()
		for i := uint32(0); b.Loop(); i++ {
			m.Set(i % n)
		}
	})
	b.Run("NextClear in a full MiB", func(b *testing.B) {
		m.SetRange(0, n)
		b.ReportAllocs()
		for b.Loop() {
			if m.NextClear(0, n) != n {
				b.Fatal("it is not full")
			}
		}
	})
	b.Run("SetRange", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			m.SetRange(3, n-5)
		}
	})
}

func BenchmarkMsg(b *testing.B) {
	for name, m := range map[string]wire.Msg{
		"GrantUp": {Kind: wire.MsgGrantUp, Grant: 1 << 20},
		"Barrier": {Kind: wire.MsgBarrier, Round: 3, Digest: 1 << 60},
		"Fetch":   {Kind: wire.MsgFetch, Ranges: make([]wire.Range, 64)},
	} {
		buf := wire.AppendMsg(nil, &m)
		b.Run("Append "+name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				buf = wire.AppendMsg(buf[:0], &m)
			}
		})
		b.Run("Parse "+name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := wire.ParseMsg(buf); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkPlan(b *testing.B) {
	s := allgather(1024, 64<<10, 4096, 4, 4)
	l := mustLayout(b, 0)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Plan(s, l); err != nil {
			b.Fatal(err)
		}
	}
}
