package bpf

import (
	"testing"

	"github.com/allcast/allcast/internal/fabric"
)

// Open refuses invalid placements and releases everything it took for them.
func TestOpenRefuses(t *testing.T) {
	w := newLoopback(t, Config{Chunk: 100}, 1, false)
	a := w.Area(w.alloc(t, 1000))
	bad := func(change func(l *fabric.PlacementSpec)) *fabric.PlacementSpec {
		l := specOf(0, 100, 1000)
		change(l)
		return l
	}
	for name, l := range map[string]*fabric.PlacementSpec{
		"no token":               bad(func(l *fabric.PlacementSpec) { l.Token = 0 }),
		"no chunks":              specOf(0, 100),
		"chunks above the limit": specOf(0, 101, 1000),
		"an unknown subgroup":    specOf(1, 100, 1000),
		"too many words":         bad(func(l *fabric.PlacementSpec) { l.PSNs = 32*words + 1 }),
		"too many blocks":        bad(func(l *fabric.PlacementSpec) { l.Blocks = make([]fabric.Block, blocks+1) }),
	} {
		if p := a.Open(l); p != nil {
			t.Errorf("%s: Open accepted it", name)
		}
	}
	nothingTaken(t, w.Offload)
	must(t, w.Close())
	if p := a.Open(specOf(0, 100, 1000)); p != nil {
		t.Error("Open succeeded after Close")
	}
}

// nothingTaken checks that all entries of the tables are free.
func nothingTaken(t testing.TB, o *Offload) {
	t.Helper()
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.open) != 0 || len(o.freeWords) != 1 || o.freeWords[0].n != words || len(o.freeBlocks) != 1 ||
		o.freeBlocks[0].n != blocks {
		t.Errorf("%d placements are open; free: words %v, blocks %v", len(o.open), o.freeWords, o.freeBlocks)
	}
}

// Open fails once all entries that a token can use are taken, and once the table is full.
func TestPlacementsFull(t *testing.T) {
	w := newLoopback(t, Config{Chunk: 100}, 1, false)
	mem := w.alloc(t, placements*100)
	a := w.Area(mem)
	var open []*follower
	at := func(token uint64, off int) *follower {
		l := specOf(0, 100, 100)
		l.Token, l.Blocks[0].Off = token, int64(off)
		p := a.Open(l)
		if p == nil {
			return nil
		}
		return follow(p, l)
	}
	for i := range uint64(probes) {
		p := at(i<<32|5, 0)
		if p == nil {
			t.Fatalf("Open refused placement %d of %d with colliding tokens", i, probes)
		}
		open = append(open, p)
	}
	if at(1<<60|5, 0) != nil {
		t.Error("Open accepted more placements than entries are probed")
	}
	open[3].Close()
	if open[3] = at(1<<60|5, 0); open[3] == nil {
		t.Error("Open did not reuse a free entry")
	}
	for _, p := range open {
		p.Close()
	}
	open = open[:0]
	// The table is full, and each placement receives its own chunk.
	for i := range uint64(placements) {
		p := at(1<<40|i, int(i)*100)
		if p == nil {
			t.Fatalf("Open refused placement %d of %d", i, placements)
		}
		open = append(open, p)
	}
	if at(1<<41, 0) != nil {
		t.Error("Open accepted more placements than the table holds")
	}
	data := randomBytes(placements * 100)
	for i := range uint64(placements) {
		w.send(t, 0, datagram(header(1<<40|i, 0), data[i*100:][:100]))
	}
	same(t, mem, data)
	for _, p := range open {
		runs(t, p, fabric.Run{PSN: 0, N: 1})
		p.Close()
	}
	nothingTaken(t, w.Offload)
}

// Chunks are placed correctly with the last words and blocks of the tables.
func TestTablesExhausted(t *testing.T) {
	w := newLoopback(t, Config{Chunk: 1}, 1, false)
	n := words*32 - 32
	mem := w.alloc(t, n+32)
	a := w.Area(mem)
	big, small := specOf(0, 1, n), specOf(0, 1, 32)
	first := a.Open(big)
	last := a.Open(small)
	if first == nil || last == nil {
		t.Fatal("Open refused placements although words are free")
	}
	ours, theirs := follow(first, big), follow(last, small)
	if a.Open(specOf(0, 1, 1)) != nil {
		t.Error("Open accepted a placement although no words are free")
	}
	w.send(t, 0, datagram(header(big.Token, 77), []byte{7}), datagram(header(small.Token, 31), []byte{31}))
	if mem[77] != 7 || mem[31] != 31 {
		t.Error("the chunk was not placed")
	}
	runs(t, ours, fabric.Run{PSN: 77, N: 1})
	runs(t, theirs, fabric.Run{PSN: 31, N: 1})
	first.Close()
	last.Close()
	nothingTaken(t, w.Offload)

	l := uniform(0, 1, blocks, 1)
	p := a.Open(l)
	if p == nil {
		t.Fatal("Open refused a placement although blocks are free")
	}
	if a.Open(specOf(0, 1, 1)) != nil {
		t.Error("Open accepted a placement although no blocks are free")
	}
	w.send(t, 0, datagram(header(l.Token, blocks-1), []byte{99}))
	if mem[blocks-1] != 99 {
		t.Error("the chunk was not placed")
	}
	p.Close()
	nothingTaken(t, w.Offload)
}

// Placements of several subgroups share one token.
func TestSubgroups(t *testing.T) {
	w := newLoopback(t, Config{Chunk: 100}, 4, false)
	mem, data := w.alloc(t, 4000), randomBytes(4000)
	token := newToken()
	var open []*follower
	var specs []*fabric.PlacementSpec
	for sub := range 4 {
		l := specOf(sub, 100, 1000)
		l.Token = token
		_, p := w.open(t, mem[sub*1000:][:1000], l)
		open, specs = append(open, p), append(specs, l)
	}
	for i := range 10 {
		for sub := range 4 {
			w.send(t, sub, chunksOf(specs[sub], data[sub*1000:][:1000])[i])
		}
	}
	same(t, mem, data)
	for _, p := range open {
		runs(t, p, fabric.Run{PSN: 0, N: 10})
		ignored(t, p, 0, 0, 0)
		p.Close()
	}
}
