package sim

import (
	"fmt"
	"testing"

	"github.com/allcast/allcast/internal/node"
	"github.com/allcast/allcast/internal/p2p"
	"github.com/allcast/allcast/internal/testenv"
	"github.com/allcast/allcast/internal/wire"
)

// Unexpected pieces are counted when the operation has ended.
func TestUnwantedPiecesAreCounted(t *testing.T) {
	cfg, _, err := base(t, "allgather", "star:2", 1000).complete()
	if err != nil {
		t.Fatal(err)
	}
	w, err := newWorld(cfg)
	if err != nil {
		t.Fatal(err)
	}
	plan, err := p2p.New("ring", p2p.Spec{Kind: p2p.Allgather, Size: 2, Counts: []int64{10, 10}})
	if err != nil {
		t.Fatal(err)
	}
	h := w.hosts[0]
	mem := &memory{c: &collective{members: []int{0, 1}}}
	h.regions[opKey{}] = &region{mem: mem, inbox: p2p.NewInbox(plan), open: true}
	for nth := range uint32(3) {
		h.put(&packet{refs: 1, kind: pktPut, src: 1, psn: 5 + nth, all: 10, last: true})
	}
	h.revoke(&node.Action{})
	if f := h.node.Stats().Foreign; f != 3 {
		t.Errorf("%d pieces are counted as foreign, want 3", f)
	}
}

// Every algorithm is verified against a simple reference: the bytes that the ranks contributed, or their
// sum. Sizes, segments and loss of all packets vary with the number of ranks.
func TestEveryAlgorithm(t *testing.T) {
	sizes := []int64{0, 1, 7, 1000, 4096, 20_001, 70_001}
	for op, algos := range Algorithms {
		for _, algo := range algos {
			t.Run(op+"/"+algo, func(t *testing.T) {
				t.Parallel()
				for p := 1; p <= 40; p++ {
					if testenv.Race && p > 9 && p%12 != 4 {
						continue // the run without the race detector covers all sizes
					}
					for i := range 2 {
						cfg := base(t, op, fmt.Sprintf("star:%d", p), sizes[(p+3*i)%len(sizes)])
						cfg.Algo, cfg.Chunk, cfg.Root = algo, 1000, p/3
						if p > 13 {
							cfg.Bytes = min(cfg.Bytes, 20_001) // larger ones would only take time
						}
						if (i+p/7)%2 > 0 {
							cfg.Segment = 2000
						}
						if (i+p/14)%2 > 0 {
							cfg.LossAll = 0.05
						}
						if p%5 == 0 && operations[op].owners == everyRank {
							cfg.Counts = make([]int64, p)
							for i := range cfg.Counts {
								cfg.Counts[i] = cfg.Bytes * int64(i%3)
							}
						}
						verifyAlgorithm(t, cfg)
					}
				}
			})
		}
	}
}

func verifyAlgorithm(t *testing.T, cfg Config) *Result {
	t.Helper()
	r, err := Run(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if !r.Verified || r.Algo != cfg.Algo || (cfg.LossAll == 0 && r.TimeUS < r.BoundUS) {
		t.Fatalf("%s %s of %d bytes on %s, segment %d, loss %v: not verified: %d wrong, %q, %+v, %v us, bound %v us",
			cfg.Op, r.Algo, cfg.Bytes, r.Topology, cfg.Segment, cfg.LossAll, r.Wrong, r.Violation, r.Errors,
			r.TimeUS, r.BoundUS)
	}
	return r
}

// Large blocks are verified, whether memory holds bytes or tags. Blocks are not a multiple of a chunk, so
// packets of several blocks hold parts of chunks.
func TestLargeBlocks(t *testing.T) {
	t.Parallel()
	slow(t)
	for op, algos := range Algorithms {
		for _, algo := range algos {
			cfg := base(t, op, "star:5", 1<<20)
			cfg.Algo, cfg.Root = algo, 3
			verifyAlgorithm(t, cfg)
			if operations[op].owners == noRank && op != "barrier" && op != bothAtOnce {
				cfg = base(t, op, "star:13", 8<<20+12345) // too large for real bytes
				cfg.Algo, cfg.Chunk = algo, 1<<16+1
				verifyAlgorithm(t, cfg)
			}
		}
	}
	// Small blocks on many ranks: pat packs several into a packet, and some are in scratch memory.
	for _, bytes := range []int64{100, 3000} {
		cfg := base(t, "allgather", "star:300", bytes)
		cfg.Algo = "pat"
		verifyAlgorithm(t, cfg)
	}
}

// The sizes of blocks differ by pair of ranks if they are private. A rank passes to its call only those
// that it knows.
func TestPrivateSizes(t *testing.T) {
	x := newExchange(wire.Scatterv, 6, 2, 1000, 7)
	sizes := map[int64]bool{}
	for rank := range 6 {
		counts, _ := x.known(rank)
		for i, n := range counts {
			if n != x.size(2, i) && (rank == 2 || i == rank || n != 0) {
				t.Errorf("rank %d passes %d bytes for rank %d", rank, n, i)
			}
			sizes[x.size(2, i)] = true
		}
	}
	if len(sizes) < 5 {
		t.Errorf("sizes %v", sizes)
	}
	x = newExchange(wire.Alltoallv, 6, 0, 1000, 7)
	sent, received := x.known(1)
	for i := range 6 {
		if sent[i] != x.size(1, i) || received[i] != x.size(i, 1) {
			t.Errorf("rank 1 sends %v and receives %v", sent, received)
		}
	}
}

// The results of an exchange: link bounds and chunks follow from the blocks, and an even rank waits for the
// answer to its message.
func TestExchangeCosts(t *testing.T) {
	for _, x := range []struct {
		op, algo, topology   string
		bytes, bound, chunks int64
		leastUS, mostUS      float64
	}{
		// 3 blocks of 8 KiB over 2 links each, one after the other on the root's link.
		{
			op: "gather", algo: "linear", topology: "star:4", bytes: 8192,
			bound: 3 * 8192 * 2, chunks: 6, leastUS: 2.9, mostUS: 3.4,
		},
		// 12 blocks; the ranks of one leaf are 2 links apart, others 4.
		{
			op: "alltoall", algo: "pairwise", topology: "fat-tree:4,2,1", bytes: 4096,
			bound: 4096 * (4*2 + 8*4), chunks: 12, leastUS: 2.9, mostUS: 4.5,
		},
		// A message and its answer, each 1 us of latency and 0.33 us twice; eager.
		{
			op: "sendrecv", algo: "direct", topology: "star:3", bytes: 4096,
			bound: 2 * 4096 * 2, chunks: 2, leastUS: 3.2, mostUS: 3.5,
		},
	} {
		cfg := base(t, x.op, x.topology, x.bytes)
		cfg.Algo = x.algo
		r := verifyAlgorithm(t, cfg)
		if r.LinkBytesBound != x.bound || r.PayloadLinkBytes != x.bound || r.ChunksTotal != x.chunks ||
			r.TimeUS < x.leastUS || r.TimeUS > x.mostUS {
			t.Errorf("%s: payload %d, bound %d, want %d; %d chunks, want %d; %v us, want %v to %v", x.op,
				r.PayloadLinkBytes, r.LinkBytesBound, x.bound, r.ChunksTotal, x.chunks, r.TimeUS, x.leastUS, x.mostUS)
		}
	}
}

// A message above the eager limit waits for the receiver: one more round trip.
func TestSendrecvRendezvous(t *testing.T) {
	run := func(bytes int64) float64 {
		cfg := base(t, "sendrecv", "star:2", bytes)
		cfg.Algo = "direct"
		return verifyAlgorithm(t, cfg).TimeUS
	}
	if d := run(node.EagerMail+1) - run(node.EagerMail); d < 4 || d > 5 {
		t.Errorf("without credit, two messages take %v us longer; want two round trips of 2 us and two headers", d)
	}
}
