package world

import (
	"sync/atomic"
	"testing"

	"github.com/allcast/allcast/internal/fabric"
)

// A probe counts if all of it arrived: the first packet of several does not.
func TestProbeCounts(t *testing.T) {
	p := &prober{token: 7, size: 4, full: 20_000, heard: make([]atomic.Bool, 4), all: make(chan struct{})}
	p.left.Store(3)
	s := &probeSink{p: p, self: 2}
	for _, c := range []struct {
		rank  uint32
		bytes int
		want  bool
	}{{0, 8956, false}, {0, 20_000, true}, {1, 8956, false}, {1, 0, true}, {3, 0, false}, {3, 20_000, true}} {
		s.Chunk(fabric.Header{Token: 7, Comm: probeComm, Imm: c.rank}, make([]byte, c.bytes))
		if got := p.heard[c.rank].Load(); got != c.want {
			t.Errorf("%d bytes of rank %d: heard %v", c.bytes, c.rank, got)
		}
	}
	select {
	case <-p.all:
	default:
		t.Error("all were heard, and nobody says so")
	}
}
