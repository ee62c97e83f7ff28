package node

import (
	"testing"

	"github.com/allcast/allcast/internal/mcast"
	"github.com/allcast/allcast/internal/wire"
)

// smallWorld is ranks that make eager multicasts, without loss and without time.
type smallWorld struct {
	n       []*Node
	removed []int
	errs    int
	open    []map[uint64]*mcast.Placement
	flying  []map[uint64]wire.Range
}

func (w *smallWorld) act() {
	for busy := true; busy; {
		busy = false
		for i, n := range w.n {
			acts := append([]Action(nil), n.Actions()...)
			for _, a := range acts {
				busy = true
				switch a.Kind {
				case Open:
					w.open[i][a.Seq] = a.Placements[0]
					n.Opened(1, a.Comm, a.Seq, false)
					if q, ok := w.flying[i][a.Seq]; ok {
						w.place(i, a.Seq, q)
					}
				case Send:
					m := a.Msg
					w.n[a.To].Message(1, i, &m)
				case Multicast:
					for j := range w.n {
						switch q := (wire.Range{PSN: a.PSN, N: a.N}); {
						case j == i:
						case w.open[j][a.Seq] != nil:
							w.place(j, a.Seq, q)
						default:
							w.flying[j][a.Seq] = q
						}
					}
				case Closed:
					n.Drained(1, a.Comm, a.Seq)
				case Removed:
					w.removed[i]++
				case Done:
					if a.Err != nil {
						w.errs++
					}
				}
			}
		}
	}
}

func (w *smallWorld) place(i int, seq uint64, q wire.Range) {
	p := w.open[i][seq]
	p.Finish(q.PSN, q.N)
	w.n[i].Received(1, &mcast.Report{Runs: []mcast.PlacedRun{{Placement: p, Range: q}}, Chunks: q.N}, false)
}

func newSmallWorld(t *testing.T, size int) (*smallWorld, []*mcast.Geometry) {
	t.Helper()
	w := &smallWorld{removed: make([]int, size)}
	l, err := wire.NewLayout(0)
	if err != nil {
		t.Fatal(err)
	}
	for r := range size {
		n := New(0, Config{Rank: r, Size: size, Layout: l, EagerChunks: 32, Room: 10000, Eager: 1 << 20})
		members := upTo(size)
		if err := n.AddComm(7, members); err != nil {
			t.Fatal(err)
		}
		w.n = append(w.n, n)
		w.open = append(w.open, map[uint64]*mcast.Placement{})
		w.flying = append(w.flying, map[uint64]wire.Range{})
	}
	s := mcast.Shape{Kind: wire.Broadcast, Counts: make([]int64, size), Chunk: 4, Chains: 1, Subgroups: 1, Eager: 32}
	s.Counts[0] = 10
	plan, err := mcast.Plan(s, l)
	if err != nil || !plan[0].Eager() {
		t.Fatal(err)
	}
	return w, plan
}

// A root that made one call more than the others learns that they have left.
func TestEagerCallAfterOthersLeft(t *testing.T) {
	for _, late := range []bool{true, false} { // whether the others leave before the root asks
		w, plan := newSmallWorld(t, 2)
		for _, n := range w.n {
			_ = n.Start(1, 7, 1, plan)
		}
		w.act()
		_ = w.n[0].Start(1, 7, 2, plan)
		w.act()
		if late {
			_ = w.n[1].RemoveComm(1, 7)
			w.act()
		}
		_ = w.n[0].RemoveComm(1, 7)
		w.act()
		if !late {
			_ = w.n[1].RemoveComm(1, 7)
			w.act()
		}
		for i, n := range w.n {
			if n.Comms() != 0 {
				t.Errorf("late %v: rank %d keeps the communicator", late, i)
			}
		}
	}
}

// A rank knows what its peer knows of its calls, also after reports of eager multicasts.
func TestEagerInformed(t *testing.T) {
	w, plan := newSmallWorld(t, 2)
	for _, n := range w.n {
		e := &n.comms[7].eager
		e.reached, e.informed = make([]uint64, 2), make([]uint64, 2)
	}
	for k := range uint64(8) {
		for _, n := range w.n {
			_ = n.Start(1, 7, k, plan)
		}
		w.act()
	}
	if a, b := w.n[1].comms[7].eager.informed[0], w.n[0].comms[7].eager.reached[1]; a != b {
		t.Errorf("rank 1 believes that rank 0 knows of %d calls; rank 0 knows of %d", a, b)
	}
	if a, b := w.n[0].comms[7].eager.informed[1], w.n[1].comms[7].eager.reached[0]; a != b {
		t.Errorf("rank 0 believes that rank 1 knows of %d calls; rank 1 knows of %d", a, b)
	}
}
