package node

import (
	"testing"

	"github.com/allcast/allcast/internal/clustertest"
	"github.com/allcast/allcast/internal/mcast"
	"github.com/allcast/allcast/internal/step"
	"github.com/allcast/allcast/internal/wire"
)

// receiver is a node in the middle of a broadcast from rank 0, before the first chunk. It answers its own
// messages in place of the other ranks.
func receiver(t clustertest.TB, flow mcast.Flow, chunks int64, subgroups int) (*Node, []*mcast.Placement) {
	t.Helper()
	cfg := testConfig()
	cfg.Rank, cfg.Size, cfg.Flow, cfg.Room = 1, 2, flow, 8192
	n := New(0, cfg)
	if err := n.AddComm(0, upTo(2)); err != nil {
		t.Fatalf("%v", err)
	}
	shape := broadcast(2, 0, chunks*4096, 4096)
	shape.Subgroups = subgroups
	plan, err := mcast.Plan(shape, cfg.Layout)
	if err != nil || len(plan) != 1 {
		t.Fatalf("%d rounds, %v", len(plan), err)
	}
	if err := n.Start(0, 0, 0, plan); err != nil {
		t.Fatalf("%v", err)
	}
	open := n.Actions()[0]
	n.Opened(0, 0, 0, false)
	for _, a := range n.Actions() {
		if a.Kind == Send && a.Msg.Kind == wire.MsgBarrier {
			n.Message(0, 0, &a.Msg) // rank 0 would send the same
		}
	}
	n.Actions()
	if phase := n.comms[0].find(0).op.Phase(); phase != step.Multicast {
		t.Fatalf("in the %v phase", phase)
	}
	return n, open.Placements
}

// feed gives a node the next chunk, which a receive worker reports at once.
type feed struct {
	n      *Node
	all    []*mcast.Placement
	next   uint32
	report mcast.Report
}

func newFeed(t clustertest.TB, flow mcast.Flow, chunks int64, subgroups int) *feed {
	n, all := receiver(t, flow, chunks, subgroups)
	return &feed{n: n, all: all, report: mcast.Report{Runs: make([]mcast.PlacedRun, 1)}}
}

func (f *feed) chunk() {
	subs := uint32(len(f.all))
	p, psn := f.all[f.next%subs], f.next/subs
	f.next++
	p.Finish(psn, 1)
	f.report.Runs[0] = mcast.PlacedRun{Placement: p, Range: wire.Range{PSN: psn, N: 1}}
	f.n.Received(step.Time(f.next), &f.report, false)
	f.n.Actions()
}

func TestChunkDoesNotAllocate(t *testing.T) {
	const runs = 20000
	for _, flow := range []mcast.Flow{mcast.FlowNone, mcast.FlowCredit} {
		for _, subgroups := range []int{1, 4} {
			f := newFeed(t, flow, 2*runs, subgroups)
			if per := testing.AllocsPerRun(runs, f.chunk); per != 0 {
				t.Errorf("flow %v, %d subgroups: %v allocations per chunk", flow, subgroups, per)
			}
		}
	}
}

func TestIgnoredDatagramsDoNotAllocate(t *testing.T) {
	n, _ := receiver(t, mcast.FlowNone, 16, 1)
	r := mcast.Report{Ignored: mcast.Ignored{Duplicates: 1, Late: 1, Foreign: 1, Stale: 1}}
	if per := testing.AllocsPerRun(1000, func() { n.Received(1, &r, false) }); per != 0 {
		t.Errorf("%v allocations", per)
	}
}

func BenchmarkChunk(b *testing.B) {
	const chunks = 1 << 20
	for _, flow := range []mcast.Flow{mcast.FlowNone, mcast.FlowCredit} {
		b.Run(flow.String(), func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(4096)
			f := newFeed(b, flow, chunks, 1)
			for b.Loop() {
				if f.next == chunks-1 { // the last chunk would end the operation
					b.StopTimer()
					f = newFeed(b, flow, chunks, 1)
					b.StartTimer()
				}
				f.chunk()
			}
		})
	}
}
