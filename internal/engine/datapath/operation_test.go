package datapath

import (
	"testing"
	"testing/synctest"

	"github.com/allcast/allcast/internal/engine/queue"
	"github.com/allcast/allcast/internal/fabric"
	"github.com/allcast/allcast/internal/mcast"
	"github.com/allcast/allcast/internal/p2p"
	"github.com/allcast/allcast/internal/wire"
)

// heldNet is a reliable side on which nothing ends before the test says so.
type heldNet struct {
	fabric.Receiver
	registers bool // at once
	cancelled int
	reads     []fabric.ReadID
}

func (n *heldNet) Send(int, []byte)                   {}
func (n *heldNet) SendMore(int, []byte)               {}
func (n *heldNet) Put(int, fabric.Piece, []byte)      {}
func (n *heldNet) Cancel(fabric.OpKey)                { n.cancelled++ }
func (n *heldNet) Register(fabric.OpKey, []byte) bool { return n.registers }
func (n *heldNet) Unregister(fabric.OpKey)            {}
func (n *heldNet) ReadInto(_ int, r fabric.ReadRequest, _ []byte) {
	n.reads = append(n.reads, r.ReadID)
}
func (n *heldNet) Wake() {}

// multicast gives the datapath workers that the test runs.
func (n *heldNet) multicast(d *Datapath) {
	tx := &scripted{room: -1, completed: 1 << 20}
	d.recvs = []*receiver{newReceiver(d, 0, n)}
	d.subgroups = 1
	d.sends = []*sender{
		{d: d, main: true, tx: []fabric.Sender{tx}, posted: make([]uint64, 1), max: 1, cmds: queue.New[command]()},
	}
}

// opTest is an operation of rank 1 of 2 whose network and workers the test plays.
type opTest struct {
	*testing.T
	net  heldNet
	d    *Datapath
	sink *recorded
	op   *Operation
	held []Event
}

// newOpTest starts a round: a Broadcast of n bytes from a rank by multicast, or a point-to-point Allgather.
func newOpTest(t *testing.T, multicast, registers bool, root int, n int64) *opTest {
	t.Helper()
	x := &opTest{T: t, net: heldNet{registers: registers}}
	x.d, x.sink = bare(t)
	x.d.rel = fabric.Reliable{Messages: &x.net, Memory: &x.net, Direct: &x.net}
	x.net.multicast(x.d)
	b := &Buffers{Group: &Group{Rank: 1, Members: []int{0, 1}}, Recv: make([]byte, 2*n)}
	r := Round{Key: fabric.OpKey{Comm: 3}, Buffers: b}
	if multicast {
		counts := make([]int64, 2)
		counts[root] = n
		plan, err := mcast.Plan(mcast.Shape{
			Kind: wire.Broadcast, Root: root, Counts: counts, Chunk: 100, Chains: 1, Subgroups: 1,
		}, x.d.cfg.Layout)
		if err != nil {
			t.Fatal(err)
		}
		o := mcast.New(mcast.Config{Geometry: plan[0], Rank: 1, Est: mcast.NewEstimator(mcast.Limits{})})
		r.Geometry, r.Placements = plan[0], o.Placements()
	} else {
		var err error
		if b.Plan, err = p2p.New("linear", p2p.Spec{
			Kind: wire.Allgather, Rank: 1, Size: 2, Bytes: 2 * n, Counts: []int64{n, n},
		}); err != nil {
			t.Fatal(err)
		}
		r.Inbox = p2p.NewInbox(b.Plan)
	}
	x.d.Prepare(b, false)
	x.op = x.d.StartRound(r)
	return x
}

// work lets the workers obey, and hands all events back. It returns the kinds of those that control sees.
func (x *opTest) work() (kinds []EventKind) {
	x.d.recvs[0].drain()
	x.d.sends[0].work()
	for _, ev := range x.sink.take() {
		if x.d.Accept(&ev) {
			kinds = append(kinds, ev.Kind)
		}
	}
	return kinds
}

// A failed operation is quiet when the last of those who may touch its buffers has answered, and not
// before.
func TestQuiesceWaits(t *testing.T) {
	large := int64(maxInlineDigest + 1)
	for name, c := range map[string]struct {
		multicast, registers bool
		n                    int64
		begin, end           func(x *opTest)
		cancels              bool
	}{
		"put": {
			n: 8, begin: func(x *opTest) { x.op.Put(0, 0, &p2p.Send{Off: 8, Len: 8}) },
			end: func(x *opTest) { x.d.PutDone(0, fabric.Piece{Op: x.op.Key, Len: 8}) }, cancels: true,
		},
		"data": {
			n: 8, begin: func(x *opTest) {
				if !x.op.pins.enter() {
					x.Fatal("the operation takes no data")
				}
			},
			end: func(x *opTest) {
				if x.op.pins.enter() {
					x.Error("another goroutine may still begin")
				}
				x.op.unpin()
			},
		},
		"registration": {
			multicast: true, n: 1000, begin: func(x *opTest) {
				if ready, _ := x.op.Ready(); ready {
					x.Error("ready before its buffer is registered")
				}
			},
			end: func(x *opTest) { x.d.Registered(x.op.Key, nil) }, cancels: true,
		},
		"direct read": {
			multicast: true, registers: true, n: 1000, begin: func(x *opTest) {
				x.op.Read(0, 0, []wire.Range{{PSN: 2, N: 3}})
				if x.work(); len(x.net.reads) != 1 {
					x.Fatalf("%d reads", len(x.net.reads))
				}
			},
			end: func(x *opTest) { x.d.ReadIntoDone(0, x.net.reads[0], true) }, cancels: true,
		},
		"digest": {
			multicast: true, registers: true, n: large, begin: func(x *opTest) {
				if _, done := x.op.Digest(); done {
					x.Fatal("a large digest is done at once")
				}
				synctest.Wait()
				x.held = x.sink.take() // the test holds the report back
			},
			end: func(x *opTest) { x.sink.events = x.held }, cancels: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				x := newOpTest(t, c.multicast, c.registers, 0, c.n)
				c.begin(x)
				if x.op.Quiesce() {
					t.Fatal("quiet at once")
				}
				if kinds := x.work(); len(kinds) > 0 || x.op.waiting != 1 {
					t.Fatalf("events %v, it waits for %d answers; want 1", kinds, x.op.waiting)
				}
				if (x.net.cancelled > 0) != c.cancels {
					t.Errorf("cancelled %d times", x.net.cancelled)
				}
				c.end(x)
				if kinds := x.work(); len(kinds) != 1 || kinds[0] != Quiesced || x.d.Operation(x.op.Key) != nil {
					t.Errorf("events %v", kinds)
				}
			})
		})
	}
}

// The send worker and the receive workers answer too.
func TestQuiesceWaitsForWorkers(t *testing.T) {
	x := newOpTest(t, true, true, 0, 1000)
	if x.op.Quiesce() || x.op.waiting != 2 {
		t.Fatalf("it waits for %d answers, want 2", x.op.waiting)
	}
	x.d.sends[0].work()
	for _, ev := range x.sink.take() {
		if x.d.Accept(&ev) {
			t.Errorf("event %d before the receive worker has answered", ev.Kind)
		}
	}
	if kinds := x.work(); len(kinds) != 1 || kinds[0] != Quiesced {
		t.Errorf("events %v", kinds)
	}
}

// An operation that nobody touches is quiet at once, and refuses data.
func TestQuiesceAtOnce(t *testing.T) {
	x := newOpTest(t, false, true, 0, 8)
	if !x.op.Quiesce() || x.op.pins.enter() {
		t.Error("not quiet")
	}
}

// A root receives nothing, so nothing wakes its receive worker. Commands for it must not pile up.
func TestCommandsDoNotPileUp(t *testing.T) {
	x := newOpTest(t, true, true, 1, 1000)
	if ready, _ := x.op.Ready(); !ready {
		t.Error("not ready")
	}
	x.op.Release()
	if !x.d.recvs[0].cmds.Empty() {
		t.Error("commands wait for the root's receive worker")
	}
}
