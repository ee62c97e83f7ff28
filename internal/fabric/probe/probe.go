// Package probe tests whether multicast arrives. Every rank of a group sends small datagrams, and notes
// which ranks it hears. The ranks then exchange the results over the reliable side.
package probe

import (
	"sync/atomic"
	"time"

	"github.com/allcast/allcast/internal/fabric"
	"github.com/allcast/allcast/internal/wire"
)

// A test takes bounded time. Switches that snoop on group membership need a moment to learn of a new
// group, and many ranks on few processors are slow. A rank therefore repeats its datagrams, and backs
// off.
const (
	base    = 2 * time.Second
	perRank = 20 * time.Millisecond
	every   = 20 * time.Millisecond // first interval
)

// Limit is how long ranks wait for each other's datagrams in a group of the given size.
func Limit(size int) time.Duration { return base + time.Duration(size)*perRank }

// A Probe is one rank's part of a test whether every rank hears every other rank on every subgroup.
type Probe struct {
	token      uint64
	comm       uint32
	rank, size int
	subs       int
	full       int           // bytes of a chunk
	heard      []atomic.Bool // by rank and subgroup
	left       atomic.Int64
	all        chan struct{}
}

// New makes the part of one rank. All ranks of the group, and only they, know the token. Full is the
// largest payload of a datagram.
func New(token uint64, comm uint32, rank, size, subs, full int) *Probe {
	p := &Probe{
		token: token, comm: comm, rank: rank, size: size, subs: subs, full: full,
		heard: make([]atomic.Bool, size*subs), all: make(chan struct{}),
	}
	p.left.Store(int64((size - 1) * subs))
	if p.left.Load() == 0 {
		close(p.all)
	}
	return p
}

// Token marks datagrams of this test.
func (p *Probe) Token() uint64 { return p.token }

// payload is the size of a rank's datagrams. The datagrams of all ranks cross all links, so they are
// small. Only the first and the last rank send full ones, since these two are likely to be far apart.
func (p *Probe) payload(rank int) int {
	if rank == 0 || rank == p.size-1 {
		return p.full
	}
	return 0
}

// Send sends to all subgroups repeatedly, until stop is closed. It does not end once this rank has heard
// all others, since they may not have heard this rank yet.
func (p *Probe) Send(stop <-chan struct{}, send func(sub int, b *fabric.Batch)) {
	payload := make([]byte, p.payload(p.rank))
	h := wire.Header{Token: p.token, Comm: p.comm, Imm: uint32(p.rank)}
	h.Sum = h.Checksum(payload)
	b := fabric.Batch{Headers: []wire.Header{h}, Payloads: [][]byte{payload}}
	wait := every + time.Duration(p.size)*perRank/10
	again := time.NewTimer(wait)
	defer again.Stop()
	for {
		for sub := range p.subs {
			send(sub, &b)
		}
		select {
		case <-stop:
			return
		case <-again.C:
			wait *= 2
			again.Reset(wait)
		}
	}
}

// Take takes a datagram. Foreign datagrams are expected, and ignored.
func (p *Probe) Take(sub int, h wire.Header, payload []byte) {
	if h.Token != p.token || h.Comm != p.comm || uint64(h.Imm) >= uint64(p.size) || int(h.Imm) == p.rank {
		return
	}
	r := int(h.Imm)
	if len(payload) != p.payload(r) {
		return // the first packet of a chunk that did not arrive whole
	}
	if !p.heard[r*p.subs+sub].Swap(true) && p.left.Add(-1) == 0 {
		close(p.all)
	}
}

// All is closed once this rank has heard all others on all subgroups.
func (p *Probe) All() <-chan struct{} { return p.all }

// Unheard lists the ranks that this rank has not heard on all subgroups.
func (p *Probe) Unheard() (ranks []int) {
	for r := range p.size {
		for sub := range p.subs {
			if r != p.rank && !p.heard[r*p.subs+sub].Load() {
				ranks = append(ranks, r)
				break
			}
		}
	}
	return ranks
}
