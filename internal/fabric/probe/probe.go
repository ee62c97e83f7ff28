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

// A Probe is one rank's part of a test whether every rank hears every other rank on every subgroup. The
// further streams of a subgroup have the same group, and may only be filtered differently. On these it
// is enough to hear the first and the last rank.
type Probe struct {
	token      uint64
	comm       uint32
	rank, size int
	subs       int
	streams    int
	full       int           // bytes of a chunk
	heard      []atomic.Bool // by rank and stream
	left       atomic.Int64
	all        chan struct{}
}

// New makes the part of one rank. All ranks of the group, and only they, know the token. The test covers
// the first streams, at least one per subgroup. Full is the largest payload of a datagram.
func New(token uint64, comm uint32, rank, size, subs, streams, full int) *Probe {
	p := &Probe{
		token: token, comm: comm, rank: rank, size: size, subs: subs, streams: streams, full: full,
		heard: make([]atomic.Bool, size*streams), all: make(chan struct{}),
	}
	for r := range size {
		for stream := range streams {
			if r != rank && p.sends(r, stream) {
				p.left.Add(1)
			}
		}
	}
	if p.left.Load() == 0 {
		close(p.all)
	}
	return p
}

// Token marks datagrams of this test.
func (p *Probe) Token() uint64 { return p.token }

// payload is the size of a rank's datagrams to a stream. The datagrams of all ranks cross all links, so they
// are small. Only the first and the last rank send full ones, since these two are likely to be far apart,
// and only to the first stream of each subgroup: the others take the same paths.
func (p *Probe) payload(rank, stream int) int {
	if p.isEnd(rank) && stream < p.subs {
		return p.full
	}
	return 0
}

// isEnd reports whether a rank is the first or the last one.
func (p *Probe) isEnd(rank int) bool { return rank == 0 || rank == p.size-1 }

// sends reports whether a rank sends to a stream.
func (p *Probe) sends(rank, stream int) bool { return stream < p.subs || p.isEnd(rank) }

// Patience is how long ranks wait for each other's datagrams before they send again for the first time.
func Patience(size int) time.Duration { return every + time.Duration(size)*perRank/10 }

// Send sends to the streams repeatedly, until stop is closed. It does not end once this rank has heard
// all others, since they may not have heard this rank yet.
func (p *Probe) Send(stop <-chan struct{}, send func(stream int, b *fabric.Batch)) {
	wait := Patience(p.size)
	again := time.NewTimer(wait)
	defer again.Stop()
	for {
		p.SendOnce(send)
		select {
		case <-stop:
			return
		case <-again.C:
			wait *= 2
			again.Reset(wait)
		}
	}
}

// SendOnce sends one datagram to each stream that this rank sends to.
func (p *Probe) SendOnce(send func(stream int, b *fabric.Batch)) {
	for stream := range p.streams {
		if !p.sends(p.rank, stream) {
			continue
		}
		payload := make([]byte, p.payload(p.rank, stream))
		h := wire.Header{Token: p.token, Comm: p.comm, Imm: uint32(p.rank)}
		h.Sum = h.Checksum(payload)
		send(stream, &fabric.Batch{Headers: []wire.Header{h}, Payloads: [][]byte{payload}})
	}
}

// Take takes a datagram. Foreign datagrams are expected, and ignored.
func (p *Probe) Take(stream int, h wire.Header, payload []byte) {
	if h.Token != p.token || h.Comm != p.comm || uint64(h.Imm) >= uint64(p.size) || int(h.Imm) == p.rank {
		return
	}
	r := int(h.Imm)
	if stream >= p.streams || !p.sends(r, stream) {
		return
	}
	if len(payload) != p.payload(r, stream) {
		return // the first packet of a chunk that did not arrive whole
	}
	if !p.heard[r*p.streams+stream].Swap(true) && p.left.Add(-1) == 0 {
		close(p.all)
	}
}

// All is closed once this rank has heard all others on all streams.
func (p *Probe) All() <-chan struct{} { return p.all }

// Unheard lists the ranks that this rank has not heard on all subgroups.
func (p *Probe) Unheard() (ranks []int) { return p.unheard(0, p.subs) }

// UnheardStreams lists the ranks that this rank has not heard on the further streams.
func (p *Probe) UnheardStreams() (ranks []int) { return p.unheard(p.subs, p.streams) }

func (p *Probe) unheard(from, to int) (ranks []int) {
	for r := range p.size {
		for stream := from; stream < to; stream++ {
			if r != p.rank && p.sends(r, stream) && !p.heard[r*p.streams+stream].Load() {
				ranks = append(ranks, r)
				break
			}
		}
	}
	return ranks
}
