package sim

import (
	"fmt"
	"testing"

	"github.com/allcast/allcast/internal/node"
	"github.com/allcast/allcast/internal/p2p"
	"github.com/allcast/allcast/internal/testenv"
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
// sum.
func TestEveryAlgorithm(t *testing.T) {
	for op, algos := range Algorithms {
		for _, algo := range algos {
			t.Run(op+"/"+algo, func(t *testing.T) {
				t.Parallel()
				sizes := []int64{0, 1, 1000, 4096, 20_001}
				for p := 1; p <= 40; p++ {
					if testenv.Race && p > 9 && p%12 != 4 {
						continue // the run without the race detector covers all sizes
					}
					for _, bytes := range []int64{sizes[p%5], sizes[(p+3)%5]} {
						for _, segment := range []int64{0, 2000} {
							cfg := base(t, op, fmt.Sprintf("star:%d", p), bytes)
							cfg.Algo, cfg.Chunk, cfg.Segment, cfg.Root = algo, 1000, segment, p/3
							if p%5 == 0 && (op == "allgather" || op == "reduce-scatter") {
								cfg.Counts = make([]int64, p)
								for i := range cfg.Counts {
									cfg.Counts[i] = bytes * int64(i%3)
								}
							}
							r, err := Run(cfg)
							if err != nil {
								t.Fatal(err)
							}
							if !r.Verified || r.Algo != algo {
								t.Fatalf("%s of %d bytes on %d ranks, segment %d: not verified: %d wrong, %q, %+v",
									r.Algo, bytes, p, segment, r.Wrong, r.Violation, r.Errors)
							}
						}
					}
				}
			})
		}
	}
}
