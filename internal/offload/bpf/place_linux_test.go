package bpf

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/allcast/allcast/internal/fabric"
	"github.com/allcast/allcast/internal/testenv"
)

// A chunk may start at any byte of a region, also where it crosses the border of two map entries or
// ends with the region. The bytes around it stay unchanged.
func TestPlaceEverywhere(t *testing.T) {
	for _, size := range []int{1, 37, 1024, 1056, 8956, 65491} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			w := newLoopback(t, Config{Chunk: size}, 1, false)
			mem := w.alloc(t, 3*value)
			offsets := []int{0, 1, 7, value / 2, 3*value - size, 3*value - size - 1}
			for d := -size - 1; d <= 1; d += max(1, size/50) {
				offsets = append(offsets, value+d, 2*value+d)
			}
			r := rand.New(rand.NewPCG(testenv.Seed(t), uint64(size)))
			for range 20 {
				offsets = append(offsets, r.IntN(3*value-size+1))
			}
			for _, at := range offsets {
				placeAt(t, w, mem, at, size)
			}
		})
	}
}

// placeAt places one chunk and checks its bytes and those around it.
func placeAt(t *testing.T, w *loopbackSockets, mem []byte, at, size int) {
	t.Helper()
	around := mem[max(0, at-100):min(len(mem), at+size+100)]
	for i := range around {
		around[i] = 0xee
	}
	want := bytes.Clone(around)
	data := randomBytes(size)
	copy(want[at-max(0, at-100):], data)
	a, p := w.open(t, mem[at:at+size], specOf(0, size, size))
	if a.Stage() != nil {
		t.Fatal("memory from Alloc has a stage")
	}
	w.send(t, 0, datagram(header(p.l.token.Load(), 0), data))
	if !p.unseen() {
		t.Errorf("at %d: the placed chunk is not counted", at)
	}
	runs(t, p, fabric.Run{PSN: 0, N: 1})
	if p.unseen() {
		t.Errorf("at %d: chunks are unseen after scan", at)
	}
	same(t, around, want)
	p.Close()
	a.Release()
}

// Blocks have equal or different lengths, some are short or empty, and chunks arrive in any order.
func TestPlaceBlocks(t *testing.T) {
	const chunk = 1000
	r := rand.New(rand.NewPCG(testenv.Seed(t), 0))
	w := newLoopback(t, Config{Chunk: chunk}, 1, false)
	for _, lengths := range [][]int{
		{1},
		{chunk},
		{chunk + 1},
		{chunk - 1, chunk - 1, chunk - 1},
		{5 * chunk, 5 * chunk, 5*chunk - 1},
		{3*chunk + 1, 0, 7, 2 * chunk, 40*chunk + 13},
		{0, 0, 33 * chunk, 33 * chunk, 0},
		{31 * chunk, 33*chunk + 5, 1, 1, 1, 64 * chunk},
		{1 << 20, 1<<20 + 1, 13},
	} {
		l := specOf(0, chunk, lengths...)
		n := 0
		for _, k := range lengths {
			n += k
		}
		data := randomBytes(n)
		mem := w.alloc(t, n+1)[:n]
		a, p := w.open(t, mem, l)
		sameLength := func(x, y fabric.Block) bool { return x.Run.N == y.Run.N }
		distinct := len(slices.CompactFunc(slices.Clone(l.Blocks), sameLength))
		if uniformly := p.l.per != 0; uniformly != (distinct == 1) {
			t.Errorf("%v: chunks per block is %d", lengths, p.l.per)
		}
		all := chunksOf(l, data)
		r.Shuffle(len(all), func(i, k int) { all[i], all[k] = all[k], all[i] })
		w.send(t, 0, all...)
		runs(t, p, fabric.Run{PSN: 0, N: l.PSNs})
		same(t, mem, data)
		ignored(t, p, 0, 0, 0)
		p.Close()
		a.Release()
	}
	if w.received[0] != 0 {
		t.Errorf("%d datagrams reached the socket", w.received[0])
	}
}

// Chunks for a buffer that is not from Alloc are placed in a stage.
func TestPlaceStage(t *testing.T) {
	w := newLoopback(t, Config{Chunk: 100}, 1, false)
	buf, data := make([]byte, 950), randomBytes(950)
	l := specOf(0, 100, 950)
	a, p := w.open(t, buf, l)
	w.send(t, 0, chunksOf(l, data)...)
	if len(a.Stage()) != len(buf) {
		t.Fatalf("the stage has %d bytes", len(a.Stage()))
	}
	same(t, a.Stage(), data)
	if !bytes.Equal(buf, make([]byte, 950)) {
		t.Error("the program wrote to the buffer")
	}
	p.Close()
	a.Release()
}

// The process does not wait for its own chunks, and the program does not place them.
func TestPlaceOwn(t *testing.T) {
	w := newLoopback(t, Config{Chunk: 100}, 1, false)
	mem, data := w.alloc(t, 7000), randomBytes(7000)
	l := uniform(0, 100, 7, 1000)
	l.Own = l.Blocks[3].Run
	a, p := w.open(t, mem, l)
	if p.l.want != 60 {
		t.Errorf("the program waits for %d chunks, want 60", p.l.want)
	}
	w.send(t, 0, chunksOf(l, data)...)
	runs(t, p, fabric.Run{PSN: 0, N: 30}, fabric.Run{PSN: 40, N: 30})
	clear(data[3000:4000])
	same(t, mem, data)
	ignored(t, p, 10, 0, 0)
	p.Close()
	a.Release()
}

// A scan returns each chunk once and merges adjacent chunks, also across words.
func TestScan(t *testing.T) {
	w := newLoopback(t, Config{Chunk: 8}, 1, false)
	l := specOf(0, 8, 8*100)
	a, p := w.open(t, w.alloc(t, 800), l)
	all := chunksOf(l, randomBytes(800))
	runs(t, p)
	w.send(t, 0, all[3], all[4], all[31], all[32], all[99])
	runs(t, p, fabric.Run{PSN: 3, N: 2}, fabric.Run{PSN: 31, N: 2}, fabric.Run{PSN: 99, N: 1})
	runs(t, p)
	w.send(t, 0, all[5:31]...)
	w.send(t, 0, all[:3]...)
	runs(t, p, fabric.Run{PSN: 0, N: 3}, fabric.Run{PSN: 5, N: 26})
	w.send(t, 0, all...)
	runs(t, p, fabric.Run{PSN: 33, N: 66})
	ignored(t, p, 34, 0, 0)
	if p.unseen() {
		t.Error("chunks are unseen after the last scan")
	}
	p.Close()
	a.Release()
}
