package model_test

import (
	"math"
	"math/bits"
	"slices"
	"strings"
	"testing"

	"github.com/allcast/allcast/internal/model"
	"github.com/allcast/allcast/internal/p2p"
)

func testNet() model.Net {
	return model.Net{Rate: 12.5, Latency: 500, Hops: 4, Chunk: 4096, Datagram: 78, Packet: 50, Multicast: true, Inc: true}
}

var chooseKinds = map[string]p2p.Kind{
	"broadcast": p2p.Broadcast, "allgather": p2p.Allgather, "reduce-scatter": p2p.ReduceScatter,
	"allreduce": p2p.Allreduce, "barrier": p2p.Barrier, "gather": p2p.Gather, "scatter": p2p.Scatter,
	"reduce": p2p.Reduce, "alltoall": p2p.Alltoall, "gatherv": p2p.Gatherv, "scatterv": p2p.Scatterv,
}

// Invalid arguments are an error.
func TestChooseBadInput(t *testing.T) {
	change := func(f func(*model.Net)) model.Net {
		n := testNet()
		f(&n)
		return n
	}
	for what, x := range map[string]struct {
		op  string
		p   int
		n   int64
		net model.Net
	}{
		"operation": {"frobnicate", 4, 10, testNet()},
		"ranks":     {"broadcast", 0, 10, testNet()},
		"size":      {"broadcast", 4, -1, testNet()},
		"chunk":     {"allgather", 4, 10, change(func(n *model.Net) { n.Chunk = 0 })},
		"chunk < 0": {"allgather", 4, 10, change(func(n *model.Net) { n.Chunk = -1 })},
		"rate":      {"allgather", 4, 10, change(func(n *model.Net) { n.Rate = 0 })},
		"no rate":   {"allgather", 4, 10, change(func(n *model.Net) { n.Rate = math.NaN() })},
		"latency":   {"allgather", 4, 10, change(func(n *model.Net) { n.Latency = -1 })},
	} {
		if c, err := model.Choose(x.op, x.p, x.n, x.net); err == nil {
			t.Errorf("%s: %+v", what, c)
		}
	}
}

// Every estimate is finite, and candidates are sorted by time. The chosen algorithm is close to the
// fastest, and the reason names it. Algorithms that the network cannot run are no candidates.
func TestChoose(t *testing.T) {
	for op := range chooseKinds {
		for p := 1; p <= 40; p++ {
			for _, n := range []int64{0, 1, 64, 4096, 4097, 1 << 20, 1 << 34} {
				net := testNet()
				net.Multicast, net.Inc = p%2 == 0, p%3 == 0
				c, err := model.Choose(op, p, n, net)
				if err != nil {
					t.Fatal(err)
				}
				for i, e := range c.All {
					if math.IsNaN(e.NS) || math.IsInf(e.NS, 0) || e.NS < 0 || e.Sent < 0 || (i > 0 && e.NS < c.All[i-1].NS) {
						t.Fatalf("%s of %d bytes on %d ranks: %+v", op, n, p, c.All)
					}
					if (e.Algo == "mcast" && !net.Multicast) || (e.Algo == "inc" && !net.Inc) {
						t.Fatalf("%s: %s on %+v", op, e.Algo, net)
					}
				}
				if c.NS > 1.05*c.All[0].NS || !strings.HasPrefix(c.Reason, c.String()+": ") || strings.Contains(c.Reason, "NaN") {
					t.Fatalf("%s of %d bytes on %d ranks: %+v", op, n, p, c)
				}
			}
		}
	}
}

// The estimated bytes of the busiest rank equal those that the plans send.
func TestChooseSent(t *testing.T) {
	const n = 4096 * 60
	for op, kind := range chooseKinds {
		for p := 1; p <= 24; p++ {
			c, err := model.Choose(op, p, n, testNet())
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range c.All {
				if e.Algo == "mcast" || e.Algo == "inc" {
					continue
				}
				want := float64(injected(t, kind, e, p, n))
				// Uneven blocks differ by one chunk.
				if slack := float64(p) * 2 * 4096; math.Abs(e.Sent-want) > slack {
					t.Errorf("%s/%s on %d ranks: %.2f n, the plans send %.2f n", op, e.Algo, p, e.Sent/n, want/n)
				}
			}
		}
	}
}

// injected returns the bytes that the busiest rank of a plan sends.
func injected(t *testing.T, kind p2p.Kind, e model.Estimate, p int, n int64) (most int64) {
	t.Helper()
	s := p2p.Spec{Kind: kind, Size: p, Bytes: n, Segment: e.Segment, Align: 4096, Counts: make([]int64, p)}
	for i := range s.Counts {
		s.Counts[i] = n
	}
	for s.Rank = range p {
		plan, err := p2p.New(e.Algo, s)
		if err != nil {
			t.Fatal(err)
		}
		sent := int64(0)
		for _, x := range plan.Sends {
			sent += x.Len
		}
		most = max(most, sent)
	}
	return most
}

// Whole estimates only the segments that algorithms have by default.
func TestChooseWhole(t *testing.T) {
	const n = 1 << 20
	net := testNet()
	net.Whole = true
	for op := range chooseKinds {
		c, err := model.Choose(op, 8, n, net)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range c.All {
			piped := e.Algo == "chain" || e.Algo == "binary"
			whole := e.Segment == 0 || e.Segment == n || e.Segment == n/8 // the last: blocks of an Allreduce
			if piped && e.Segment != 64<<10 || !piped && !whole {
				t.Errorf("%s/%s has a segment of %d bytes", op, e.Algo, e.Segment)
			}
		}
	}
}

// Expensive messages favour algorithms with fewer of them.
func TestChooseMessage(t *testing.T) {
	net := testNet()
	for message, want := range map[float64]string{1: "pairwise", 40e3: "bruck"} {
		net.Message = message
		if c, err := model.Choose("alltoall", 8, 64, net); err != nil || c.Algo != want {
			t.Errorf("messages of %v ns: %s, %v; want %s", message, c.Algo, err, want)
		}
	}
}

// The ranks that an algorithm connects a rank to are those of its plan, if they are more than a logarithm of all.
func TestChoosePartners(t *testing.T) {
	for op, kind := range chooseKinds {
		for _, p := range []int{17, 32, 100} {
			free, err := model.Choose(op, p, 60*4096, testNet())
			if err != nil {
				t.Fatal(err)
			}
			net := testNet()
			net.Connect = 1e6
			paid, err := model.Choose(op, p, 60*4096, net)
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range paid.All {
				if e.Algo == "mcast" || e.Algo == "inc" {
					continue
				}
				i := slices.IndexFunc(free.All, func(f model.Estimate) bool {
					return f.Algo == e.Algo && f.Segment == e.Segment && f.Chains == e.Chains
				})
				extra, rounds := (e.NS-free.All[i].NS)/net.Connect, bits.Len(uint(p-1))
				most := partners(t, kind, e, p)
				if mesh := most > 3*rounds; mesh != (extra > 0) || mesh && math.Abs(extra-float64(most-rounds)) > 1e-3 {
					t.Errorf("%s/%s on %d ranks: %.3f connections for its sake; its plan has %d partners", op, e.Algo, p, extra, most)
				}
			}
		}
	}
}

// partners returns the number of ranks that the busiest rank of a plan exchanges messages with.
func partners(t *testing.T, kind p2p.Kind, e model.Estimate, p int) (most int) {
	t.Helper()
	s := p2p.Spec{Kind: kind, Size: p, Bytes: 60 * 4096, Segment: e.Segment, Align: 4096, Counts: make([]int64, p)}
	for i := range s.Counts {
		s.Counts[i] = 60 * 4096
	}
	for s.Rank = range p {
		plan, err := p2p.New(e.Algo, s)
		if err != nil {
			t.Fatal(err)
		}
		ranks := map[int32]bool{}
		for _, x := range plan.Sends {
			ranks[x.To] = true
		}
		for _, x := range plan.Recvs {
			ranks[x.From] = true
		}
		most = max(most, len(ranks))
	}
	return most
}

// Where connections cost time, small calls on many ranks choose an algorithm that needs few, and large ones may not.
func TestChooseConnections(t *testing.T) {
	net := model.Net{
		Rate: 1, Latency: 10e3, Message: 40e3, Connect: 20e3, Hops: 2, Chunk: 1460, Datagram: 100, Packet: 66, Whole: true,
		Eager: 256 << 10,
	}
	for op := range chooseKinds {
		if op == "gatherv" || op == "scatterv" {
			continue // have one algorithm
		}
		for _, p := range []int{16, 64, 128, 188, 256, 1000} {
			for _, n := range []int64{8, 4096} {
				c, err := model.Choose(op, p, n, net)
				if err != nil {
					t.Fatal(err)
				}
				if k := partners(t, chooseKinds[op], c.Estimate, p); k > 3*bits.Len(uint(p)) {
					t.Errorf("%s of %d bytes on %d ranks: %s, with %d partners", op, n, p, c.Algo, k)
				}
			}
		}
	}
	if c, err := model.Choose("alltoall", 128, 1<<20, net); err != nil || c.Algo != "pairwise" {
		t.Errorf("a large alltoall: %s, %v; want pairwise", c.Algo, err)
	}
}
