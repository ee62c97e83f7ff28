package bpf

import (
	"math/bits"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/allcast/allcast/internal/fabric"
)

// placed is fabric.Placed.
type placed struct {
	o       *Offload
	l       *lane
	words   []word
	blocks  span
	first   uint32        // of words
	settled []uint32      // chunks that need not be looked for: seen, our own or claimed
	from    int           // words before it are settled
	seen    atomic.Uint64 // what was counted at the last Scan
	ignored [3]uint64     // counted before
}

const all = 1<<32 - 1

// Open implements fabric.Placer.
func (o *Offload) Open(a fabric.Area, s *fabric.Lane) fabric.Placed {
	ar := a.(*area)
	if s.Token == 0 || s.PSNs == 0 || len(s.Blocks) == 0 || s.Chunk > o.most {
		return nil
	}
	n := (s.PSNs + 31) / 32
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed || s.Sub >= len(o.groups) {
		return nil
	}
	l := o.freeLane(s.Token)
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
	p := &placed{o: o, l: l, words: o.words[first : first+n], blocks: span{table, uint32(len(s.Blocks))}, first: first, settled: make([]uint32, n)}
	for i := range s.Own.N {
		psn := s.Own.PSN + i
		p.settled[psn/32] |= 1 << (psn % 32)
	}
	for i := range p.words {
		w := &p.words[i]
		w.done.Store(0)
		w.late.Store(0)
		w.claim.Store(uint64(o.gen)<<32 | uint64(p.settled[i]))
	}
	if rest := s.PSNs % 32; rest > 0 {
		p.settled[n-1] |= all << rest
	}
	per := s.Blocks[0].Run.N
	for i, b := range s.Blocks {
		o.blocks[table+uint32(i)] = block{off: uint64(b.Off), psn: b.Run.PSN, n: b.Run.N, tail: uint32(b.Tail)}
		if b.Run.N != per {
			per = 0
		}
	}
	g := &o.groups[s.Sub]
	l.base, l.port, l.comm, l.imm, l.mask, l.psns, l.gen = ar.off, uint32(g.group.Port()), s.Comm, s.Imm, s.Mask, s.PSNs, o.gen
	l.words, l.blocks, l.nblocks, l.per, l.chunk, l.region = first, table, uint32(len(s.Blocks)), per, uint32(s.Chunk), ar.r.id
	l.want, l.own = s.PSNs-s.Own.N, g.own.Port()
	l.every.Store(o.wakes)
	for _, c := range []*atomic.Uint64{&l.placed, &l.duplicates, &l.late, &l.foreignPackets} {
		c.Store(0)
	}
	o.open[l] = true
	l.token.Store(s.Token) // from now on it is seen
	return p
}

// freeLane finds a line for a token. o.mu is held.
func (o *Offload) freeLane(token uint64) *lane {
	for i := range uint64(probes) {
		if l := &o.lanes[(token+i)%lanes]; !o.open[l] {
			return l
		}
	}
	return nil
}

// Unseen implements fabric.Placed.
func (p *placed) Unseen() bool { return p.l.placed.Load() != p.seen.Load() }

// Scan implements fabric.Placed.
func (p *placed) Scan(runs []fabric.Run) []fabric.Run {
	// Whoever counted a chunk has set its bit before: what is counted by now is found. The
	// counter is not exact, as a program may count for the lane that was here before.
	counted := p.l.placed.Load()
	for i := p.from; i < len(p.words); i++ {
		fresh := p.words[i].done.Load() &^ p.settled[i]
		if fresh != 0 {
			p.settled[i] |= fresh
			runs = appendRuns(runs, uint32(i)*32, fresh)
		}
		if i == p.from && p.settled[i] == all {
			p.from++
		}
	}
	p.seen.Store(counted)
	return runs
}

// appendRuns appends the bits of a word.
func appendRuns(runs []fabric.Run, psn, word uint32) []fabric.Run {
	for word != 0 {
		skip := uint32(bits.TrailingZeros32(word))
		n := uint32(bits.TrailingZeros32(^(word >> skip)))
		at := psn + skip
		if k := len(runs) - 1; k >= 0 && runs[k].PSN+runs[k].N == at {
			runs[k].N += n
		} else {
			runs = append(runs, fabric.Run{PSN: at, N: n})
		}
		if skip+n == 32 {
			break
		}
		word &^= (1<<n - 1) << skip
	}
	return runs
}

// claim takes chunks of a word, and returns those that we have now and that nobody had.
func (p *placed) claim(i int, chunks uint32) uint32 {
	w := &p.words[i]
	old := uint32(w.claim.Or(uint64(chunks)))
	won := chunks &^ old
	// A program may be about to place the others, or about to give up.
	for spins := 0; ; spins++ {
		waiting := chunks & old &^ p.settled[i] &^ w.done.Load()
		if waiting == 0 {
			return won
		}
		if gone := waiting &^ uint32(w.claim.Load()); gone != 0 {
			got := gone &^ uint32(w.claim.Or(uint64(gone))) // another program may be faster
			won |= got
			old &^= got
		}
		if spins < 100 {
			runtime.Gosched()
		} else {
			time.Sleep(10 * time.Microsecond)
		}
	}
}

// Claim implements fabric.Placed.
func (p *placed) Claim(r fabric.Run) {
	p.l.every.Store(1) // from now on, every chunk counts
	for i, end := r.PSN, uint64(r.PSN)+uint64(r.N); uint64(i) < end && int(i/32) < len(p.words); {
		k := int(i / 32)
		chunks := uint32(all) << (i % 32)
		if last := uint64(k+1) * 32; last > end {
			chunks &= all >> (last - end)
		}
		won := p.claim(k, chunks)
		p.words[k].late.Or(won)
		p.settled[k] |= won
		i = uint32(k+1) * 32
	}
}

// Take implements fabric.Placed.
func (p *placed) Take(psn uint32) bool {
	k := int(psn / 32)
	if k >= len(p.words) {
		return false
	}
	p.l.every.Store(1)
	won := p.claim(k, 1<<(psn%32))
	p.settled[k] |= won
	return won != 0
}

// Ignored implements fabric.Placed.
func (p *placed) Ignored() (duplicates, late, foreign uint64) {
	now := [3]uint64{p.l.duplicates.Load(), p.l.late.Load(), p.l.foreignPackets.Load()}
	was := p.ignored
	p.ignored = now
	return now[0] - was[0], now[1] - was[1], now[2] - was[2]
}

// Close implements fabric.Placed.
func (p *placed) Close() {
	p.l.token.Store(0)
	for i := range p.words {
		p.claim(i, all)
	}
	o := p.o
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.open, p.l)
	o.freeWords.give(p.first, uint32(len(p.words)))
	o.freeBlocks.give(p.blocks.at, p.blocks.n)
}
