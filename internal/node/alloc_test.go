package node

import (
	"testing"

	"github.com/allcast/allcast/internal/protocol"
)

// receiver is a node in the middle of a broadcast from rank 0, of which nothing
// has arrived. It answers to itself for the rest of the world.
func receiver(t tb, flow protocol.Flow, chunks int64, subgroups int) (*Node, *protocol.Geometry) {
	t.Helper()
	cfg := testConfig()
	cfg.Rank, cfg.Size, cfg.Flow, cfg.Room = 1, 2, flow, 8192
	n := New(0, cfg)
	if err := n.AddComm(0, upTo(2)); err != nil {
		t.Fatalf("%v", err)
	}
	shape := broadcast(2, 0, chunks*4096, 4096)
	shape.Subgroups = subgroups
	plan, err := protocol.Plan(shape, cfg.Layout)
	if err != nil || len(plan) != 1 {
		t.Fatalf("%d rounds, %v", len(plan), err)
	}
	if err := n.Start(0, 0, 0, plan); err != nil {
		t.Fatalf("%v", err)
	}
	for _, a := range n.Actions() {
		if a.Kind == Send && a.Msg.Kind == protocol.MsgBarrier {
			n.Message(0, 0, &a.Msg) // rank 0 would say just the same
		}
	}
	n.Actions()
	if phase := n.comms[0].find(0).op.Phase(); phase != protocol.Multicast {
		t.Fatalf("in the %v phase", phase)
	}
	return n, plan[0]
}

// feed gives a node the next chunk, and the grants that it waits for.
type feed struct {
	n      *Node
	layout protocol.Layout
	next   uint32
	subs   uint32
	placed int
}

func (f *feed) chunk() {
	sub, psn := f.next%f.subs, f.next/f.subs
	f.next++
	if _, ok := f.n.Chunk(protocol.Time(f.next), 0, int(sub), f.layout.Imm(0, psn), 4096); ok {
		f.placed++
	}
	f.n.Actions()
}

func TestChunkDoesNotAllocate(t *testing.T) {
	const runs = 20000
	for _, flow := range []protocol.Flow{protocol.FlowNone, protocol.FlowCredit} {
		for _, subgroups := range []int{1, 4} {
			n, g := receiver(t, flow, 2*runs, subgroups)
			f := feed{n: n, layout: n.cfg.Layout, subs: uint32(g.Subgroups())}
			if per := testing.AllocsPerRun(runs, f.chunk); per != 0 {
				t.Errorf("flow %v, %d subgroups: %v allocations per chunk", flow, subgroups, per)
			}
			if f.placed != runs+1 {
				t.Errorf("flow %v, %d subgroups: %d of %d chunks were placed", flow, subgroups, f.placed, runs+1)
			}
			f.next = 0
			if per := testing.AllocsPerRun(runs, f.chunk); per != 0 || f.placed != runs+1 {
				t.Errorf("flow %v, %d subgroups: %v allocations per duplicate, %d placed", flow, subgroups, per, f.placed)
			}
		}
	}
}

func TestForeignChunkDoesNotAllocate(t *testing.T) {
	n, _ := receiver(t, protocol.FlowNone, 16, 1)
	layout := n.cfg.Layout
	if per := testing.AllocsPerRun(1000, func() {
		n.Chunk(1, 0, 0, layout.Imm(0, 99), 4096)
		n.Chunk(1, 0, 0, layout.Imm(7, 0), 4096)
		n.Chunk(1, 9, 0, layout.Imm(0, 0), 4096)
		n.Chunk(1, 0, 5, layout.Imm(0, 0), 4096)
		n.Chunk(1, 0, 0, layout.Imm(0, 0), 5)
	}); per != 0 {
		t.Errorf("%v allocations", per)
	}
}

func BenchmarkChunk(b *testing.B) {
	const chunks = 1 << 20
	for _, flow := range []protocol.Flow{protocol.FlowNone, protocol.FlowCredit} {
		b.Run(flow.String(), func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(4096)
			var f feed
			for b.Loop() {
				if f.next%(chunks-1) == 0 { // the last chunk would end the operation
					b.StopTimer()
					n, _ := receiver(b, flow, chunks, 1)
					f = feed{n: n, layout: n.cfg.Layout, subs: 1}
					b.StartTimer()
				}
				f.chunk()
			}
		})
	}
}
