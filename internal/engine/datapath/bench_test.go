package datapath

import (
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/allcast/allcast/internal/engine/queue"
	"github.com/allcast/allcast/internal/fabric"
	"github.com/allcast/allcast/internal/mcast"
	"github.com/allcast/allcast/internal/step"
	"github.com/allcast/allcast/internal/testenv"
	"github.com/allcast/allcast/internal/wire"
)

const (
	benchChunk = 8956
	benchBatch = 7
)

// recorded is a Sink that keeps events.
type recorded struct {
	mu     sync.Mutex
	events []Event
}

func (r *recorded) Report(ev Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, ev)
}

// take returns the events since the last call.
func (r *recorded) take() []Event {
	r.mu.Lock()
	defer r.mu.Unlock()
	events := r.events
	r.events = nil
	return events
}

// discard drops the events, and keeps the memory of the list.
func (r *recorded) discard() {
	for i := range r.events {
		if c := r.events[i].Chunks; c != nil {
			FreeReport(c)
		}
	}
	clear(r.events)
	r.events = r.events[:0]
}

// bare is a Datapath without a network.
func bare(t testing.TB) (*Datapath, *recorded) {
	t.Helper()
	layout, err := wire.NewLayout(0)
	if err != nil {
		t.Fatal(err)
	}
	sink := &recorded{}
	log := slog.New(slog.DiscardHandler)
	d := New(Config{Size: 2, Layout: layout, Secret: []byte("k"), Logger: log, Clock: func() step.Time { return 1 }}, sink)
	d.Credit.flushAfter = 28
	return d, sink
}

// bigBroadcast is an operation from rank 0 of 2, of n chunks.
func bigBroadcast(t testing.TB, n int) *Operation {
	t.Helper()
	mem := make([]byte, benchChunk) // all chunks land in the first one, since only the path counts
	layout, _ := wire.NewLayout(0)
	plan, err := mcast.Plan(mcast.Shape{
		Kind: wire.Broadcast, Counts: []int64{int64(n) * benchChunk, 0}, Chunk: benchChunk, Chains: 1, Subgroups: 1,
	}, layout)
	if err != nil {
		t.Fatal(err)
	}
	op := &Operation{token: 7, geo: plan[0]}
	op.mem.Store(&mem)
	return op
}

// benchLanding is bigBroadcast at rank 1's receive worker.
func benchLanding(t testing.TB, n int) *landing {
	t.Helper()
	op := bigBroadcast(t, n)
	o := mcast.New(mcast.Config{Geometry: op.geo, Rank: 1, Est: mcast.NewEstimator(mcast.Limits{})})
	l := &landing{op: op, place: o.Placements()[0], left: uint32(n)}
	l.place.Data = l
	return l
}

// primed opens a landing whose worker expects its second chunk next.
func (w *receiver) primed(l *landing) {
	w.in.Open(l.op.token, l.place)
	w.in.Place(l.place, wire.Range{N: 1})
}

// BenchmarkReceiveWorker measures the cost of a datagram for a receive worker, report included.
func BenchmarkReceiveWorker(b *testing.B) {
	d, sink := bare(b)
	w := newReceiver(d, 0, nil)
	const chunks = 1 << 20
	var op *Operation
	open := func() {
		l := benchLanding(b, chunks)
		op = l.op
		w.primed(l)
	}
	slots := make([]mcast.Slot, benchBatch)
	b.Run("in place", func(b *testing.B) {
		open()
		h := make([]wire.Header, benchBatch)
		psn := uint32(1)
		b.ReportAllocs()
		for i := 0; i < b.N; i += benchBatch {
			if psn+benchBatch > chunks {
				b.StopTimer()
				open()
				psn = 1
				b.StartTimer()
			}
			w.in.Expect(slots)
			for k := range h {
				h[k] = wire.Header{Token: op.token, Imm: d.cfg.Layout.Imm(0, psn+uint32(k))}
			}
			if w.Arrived(h) != benchBatch {
				b.Fatal("not where they belong")
			}
			psn += benchBatch
			if psn%(4*benchBatch) == 1 {
				w.Idle()
				sink.discard()
			}
		}
	})
	b.Run("duplicate", func(b *testing.B) {
		open()
		payload := make([]byte, benchChunk)
		h := wire.Header{Token: op.token, Imm: d.cfg.Layout.Imm(0, 0)}
		w.Chunk(h, payload)
		b.ReportAllocs()
		for b.Loop() {
			w.Chunk(h, payload)
		}
		w.Idle()
		sink.discard()
	})
}

type nowhere struct{ datagrams int }

func (n *nowhere) Send(b *fabric.Batch) (int, error) {
	n.datagrams += len(b.Headers)
	return len(b.Headers), nil
}

func (n *nowhere) Completed() uint64   { return uint64(n.datagrams) }
func (n *nowhere) Await(time.Duration) {}

// BenchmarkSendWorker measures the cost of a datagram for the send worker.
func BenchmarkSendWorker(b *testing.B) {
	d, sink := bare(b)
	op := bigBroadcast(b, benchBatch)
	mem := make([]byte, benchBatch*benchChunk)
	op.mem.Store(&mem)
	s := &sender{
		d: d, tx: []fabric.Sender{&nowhere{}}, posted: make([]uint64, 1), max: benchBatch, cmds: queue.New[command](),
	}
	s.batch.Headers = make([]wire.Header, 0, s.max)
	s.batch.Payloads = make([][]byte, 0, s.max)
	b.ReportAllocs()
	for i := 0; i < b.N; i += benchBatch {
		t := s.cmds.Item()
		t.Value = command{kind: commandMulticast, op: op, n: benchBatch}
		s.multicast(&t.Value)
		s.cmds.Free(t)
		sink.discard()
	}
}

// TestWorkersAllocateNothing checks what the benchmarks report.
func TestWorkersAllocateNothing(t *testing.T) {
	if testenv.Race {
		t.Skip("the race detector makes pools lose what they hold")
	}
	d, sink := bare(t)
	w := newReceiver(d, 0, nil)
	l := benchLanding(t, 1<<16)
	op := l.op
	w.primed(l)
	h := make([]wire.Header, benchBatch)
	slots := make([]mcast.Slot, benchBatch)
	psn := uint32(1)
	batch := func() {
		w.in.Expect(slots)
		for k := range h {
			h[k] = wire.Header{Token: op.token, Imm: d.cfg.Layout.Imm(0, psn+uint32(k))}
		}
		if w.Arrived(h) != benchBatch {
			t.Fatal("not where they belong")
		}
		psn += benchBatch
		w.Idle()
		sink.discard()
	}
	batch()
	// A garbage collection may empty the pools in between.
	if n := testing.AllocsPerRun(1000, batch); n >= 1 {
		t.Errorf("%g allocations for %d datagrams", n, benchBatch)
	}
}
