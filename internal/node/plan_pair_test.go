package node

import (
	"testing"

	"github.com/allcast/allcast/internal/p2p"
	"github.com/allcast/allcast/internal/wire"
)

// Two ranks disagree about the bytes between them, which no other rank knows. Both fail with Mismatch and
// see both sizes; no rank hangs, and no rank blames another one.
func TestPlanPairDisagrees(t *testing.T) {
	for _, kind := range []p2p.Kind{p2p.Gatherv, p2p.Scatterv, p2p.Alltoallv} {
		for _, cfg := range []Config{quietConfig(), eagerConfig()} {
			for seed := range uint64(60) {
				c := planWorld(t, 5, seed, cfg)
				k := c.plan(0, kind, p2p.Algorithms(kind)[0], 10)
				odd := c.Rand.IntN(4)
				if odd >= k.Root {
					odd++
				}
				peer := k.Root
				if kind == p2p.Alltoallv {
					peer = (odd + 1 + c.Rand.IntN(4)) % 5
				}
				k.change = func(rank int, s *p2p.Spec) {
					switch {
					case rank != odd:
					case kind != p2p.Alltoallv:
						s.Counts[odd] += 7
					case seed%2 == 0:
						s.Counts[peer] += 7
					default:
						s.Receives[peer] += 7
					}
				}
				c.hurt = true // pieces of the other call may be refused
				k.all()
				if kind != p2p.Alltoallv {
					k.disagree(peer, odd)
				} else {
					k.disagree(odd, peer)
				}
			}
		}
	}
}

// disagree checks that both ranks of a pair failed because of each other.
func (j *job) disagree(a, b int) {
	j.c.T.Helper()
	j.failures(Mismatch, a, b)
	for _, r := range []int{a, b} {
		s := j.shares[r]
		if s.err == nil || s.err.Pair == nil {
			j.c.Failf("rank %d: %v; ranks %d and %d disagree", r, s.err, a, b)
		}
		calls, ranks := s.err.Pair.Calls, s.err.Pair.Ranks
		if ranks != [2]uint32{uint32(a), uint32(b)} && ranks != [2]uint32{uint32(b), uint32(a)} {
			j.c.Failf("rank %d: %v; want ranks %d and %d", r, s.err, a, b)
		}
		diff := int64(calls[0].Bytes) - int64(calls[1].Bytes)
		if diff != 7 && diff != -7 || calls[0].Kind != j.kind || calls[0] == (wire.Call{}) {
			j.c.Failf("rank %d: the error shows %v", r, s.err)
		}
	}
}
