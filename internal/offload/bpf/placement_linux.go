package bpf

import (
	"math"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/allcast/allcast/internal/fabric"
	"github.com/allcast/allcast/internal/place"
)

// placed implements fabric.OpenPlacement.
type placed struct {
	o       *Offload
	l       *placement
	words   []place.Word
	blocks  span
	first   uint32    // index of the first word
	ignored [3]uint64 // counts when the placement was opened
}

// Open implements fabric.Area.
func (ar *area) Open(s *fabric.PlacementSpec) fabric.OpenPlacement {
	o := ar.o
	if s.Token == 0 || s.PSNs == 0 || len(s.Blocks) == 0 || s.Chunk > o.cfg.Chunk {
		return nil
	}
	n := uint32(place.Words(s.PSNs))
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed || s.Stream >= len(o.groups) {
		return nil
	}
	l := o.freePlacement(s.Token)
	if l == nil {
		return nil
	}
	first, ok := o.freeWords.take(n)
	if !ok {
		return nil
	}
	table, ok := o.freeBlocks.take(uint32(len(s.Blocks)))
	if !ok {
		o.freeWords.give(first, n)
		return nil
	}
	o.gen++
	p := &placed{o: o, l: l, words: o.words[first : first+n], blocks: span{table, uint32(len(s.Blocks))}, first: first}
	for i := range p.words {
		w := &p.words[i]
		w.Done.Store(0)
		w.Read.Store(0)
		w.Claimed.Store(uint64(o.gen) << 32)
	}
	place.Shared(p.words, s.PSNs).Finish(s.Own.PSN, s.Own.N)
	per := s.Blocks[0].Run.N
	for i, b := range s.Blocks {
		o.blocks[table+uint32(i)] = block{off: uint64(b.Off), psn: b.Run.PSN, n: b.Run.N, tail: uint32(b.Tail)}
		if b.Run.N != per {
			per = 0
		}
	}
	g := &o.groups[s.Stream]
	l.base, l.port, l.comm, l.imm, l.mask = ar.off, uint32(g.group.Port()), s.Comm, s.Imm, s.Mask
	l.psns, l.gen, l.words, l.blocks, l.nblocks = s.PSNs, o.gen, first, table, uint32(len(s.Blocks))
	l.per, l.chunk, l.region = per, uint32(s.Chunk), ar.r.id
	l.want, l.own = s.PSNs-s.Own.N, g.own.Port()
	l.every = o.wakes
	for _, c := range []*atomic.Uint64{&l.counts.placed, &l.counts.duplicates, &l.counts.late, &l.counts.foreign} {
		c.Store(0)
	}
	o.open[l] = true
	l.token.Store(s.Token) // from now on, programs see the placement
	return p
}

// freePlacement finds a free line that programs probe for a token. The caller holds o.mu.
func (o *Offload) freePlacement(token uint64) *placement {
	for i := range uint64(probes) {
		if l := &o.placements[(token+i)%placements]; !o.open[l] {
			return l
		}
	}
	return nil
}

// Words implements fabric.OpenPlacement.
func (p *placed) Words() []place.Word { return p.words }

// Counted implements fabric.OpenPlacement. It is not exact: a program may still count for the previous
// placement on this line.
func (p *placed) Counted() uint64 { return p.l.counts.placed.Load() }

// Count implements fabric.OpenPlacement.
func (p *placed) Count(n uint32) bool { return p.l.counts.placed.Add(uint64(n)) >= uint64(p.l.want) }

// Ignored implements fabric.OpenPlacement.
func (p *placed) Ignored() (duplicates, late, foreign uint64) {
	c := &p.l.counts
	now := [3]uint64{c.duplicates.Load(), c.late.Load(), c.foreign.Load()}
	was := p.ignored
	p.ignored = now
	return now[0] - was[0], now[1] - was[1], now[2] - was[2]
}

// Close implements fabric.OpenPlacement.
func (p *placed) Close() {
	p.l.token.Store(0)
	p.claimAll()
	o := p.o
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.open, p.l)
	o.freeWords.give(p.first, uint32(len(p.words)))
	o.freeBlocks.give(p.blocks.at, p.blocks.n)
}

// claimAll claims all chunks, so that no program can claim one any more. It then waits until
// programs have written the chunks that they claimed earlier.
func (p *placed) claimAll() {
	for i := range p.words {
		w := &p.words[i]
		// No program writes chunks that the process has claimed, for reads or otherwise.
		mine := w.Read.Load()
		for spins := 0; ; spins++ {
			free := ^uint32(w.Claimed.Or(math.MaxUint32))
			mine |= free
			if ^(mine | w.Done.Load()) == 0 {
				break
			}
			if spins < 100 {
				runtime.Gosched()
			} else {
				time.Sleep(10 * time.Microsecond)
			}
		}
	}
}
