// Package mem is a network in memory, for tests. One goroutine delivers everything of the reliable
// side, in the order in which it was sent, so that a test sees the same order in every run.
package mem

import (
	"sync"

	"github.com/allcast/allcast/internal/fabric"
)

// Config of a network.
type Config struct {
	Subgroups int  // 0: 1
	Streams   int  // per subgroup; 0: 1
	Chunk     int  // 0: 1000 bytes
	Batch     int  // 0: 8 datagrams
	Room      int  // datagrams of a receive queue, more are dropped; 0: 1024
	BusyEvery int  // number of calls after which Send takes half of a batch and returns ErrBusy; 0: never
	Groups    bool // communicators have groups of their own
	Direct    bool // reads are direct
}

// Net is a network.
type Net struct {
	cfg   Config
	cards []*card

	mu       sync.Mutex
	cond     sync.Cond
	ends     []*end
	runnable []*link
	calls    []call // of handlers
	stopped  bool
	ended    chan struct{}
}

// New makes a network of some ranks. Close ends it.
func New(ranks int, cfg Config) *Net {
	n := &Net{cfg: cfg, ends: make([]*end, ranks), ended: make(chan struct{})}
	n.cond.L = &n.mu
	for _, d := range []struct {
		field *int
		value int
	}{{&n.cfg.Subgroups, 1}, {&n.cfg.Chunk, 1000}, {&n.cfg.Batch, 8}, {&n.cfg.Room, 1024}} {
		if *d.field == 0 {
			*d.field = d.value
		}
	}
	for range ranks {
		n.cards = append(n.cards, newCard(n))
	}
	go n.deliver()
	return n
}

// Multicast is the unreliable side of a rank.
func (n *Net) Multicast(rank int) fabric.Multicast { return n.cards[rank] }

// Close ends the network. All ranks were closed before.
func (n *Net) Close() {
	n.mu.Lock()
	n.stopped = true
	n.cond.Broadcast()
	n.mu.Unlock()
	<-n.ended
}
