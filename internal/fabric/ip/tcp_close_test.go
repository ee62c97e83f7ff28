package ip

import (
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/allcast/allcast/internal/fabric"
	"github.com/allcast/allcast/internal/fabric/session"
)

// Ranks connect, send, drop and close all at the same time: every put is done, at most
// one loss is told for a peer, nothing hangs and nothing is left.
func TestTCPCloseRace(t *testing.T) {
	const ranks, worlds, steps = 4, 12, 30
	for seed := range uint64(worlds) {
		w := newTCPWorld(t, ranks, tcpV4, nil)
		data := make([]byte, 2*session.MaxPart)
		var puts [ranks]int
		var wg sync.WaitGroup
		for r, me := range w.ranks {
			wg.Go(func() {
				rnd := rand.New(rand.NewPCG(seed, uint64(r)))
				op := fabric.OpKey{Seq: uint64(r)}
				me.Register(op, data)
				for i := range steps {
					to := (r + 1 + rnd.IntN(ranks-1)) % ranks
					switch rnd.IntN(8) {
					case 0, 1, 2:
						me.Send(to, make([]byte, rnd.IntN(2000)))
					case 3, 4:
						n := rnd.IntN(len(data))
						me.Put(to, fabric.Piece{Op: op, Nth: uint32(i), Len: int64(n)}, data[:n])
						puts[r]++
					case 5:
						me.Read(to, fabric.ReadRequest{ReadID: fabric.ReadID{Op: fabric.OpKey{Seq: uint64(to)}, ID: uint64(i)}, Spans: []fabric.Span{{Len: int64(rnd.IntN(len(data)))}}})
					case 6:
						me.Cancel(op)
					case 7:
						if rnd.IntN(8) == 0 {
							me.Drop(to)
						}
					}
				}
				if r%2 == 0 {
					_ = me.Close()
				}
			})
		}
		wg.Wait()
		w.close(t)
		for r, rec := range w.recs {
			n := 0
			for _, done := range rec.done {
				n += len(done)
			}
			if n != puts[r] {
				t.Errorf("seed %d: rank %d: %d of %d puts done", seed, r, n, puts[r])
			}
		}
		if t.Failed() {
			return
		}
	}
}
