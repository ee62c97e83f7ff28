package control

import (
	"bytes"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/allcast/allcast/internal/engine/datapath"
	"github.com/allcast/allcast/internal/fabric"
	"github.com/allcast/allcast/internal/p2p"
	"github.com/allcast/allcast/internal/reduce"
	"github.com/allcast/allcast/internal/wire"
)

// uncopied is a network that hands a piece to its receiver without a copy. It counts the bytes that a
// rank sends straight from its input.
type uncopied struct {
	memReliable
	input []byte
	sent  *atomic.Int64
}

func (u uncopied) Put(to int, p fabric.Piece, data []byte) {
	at, input := datapath.Address(data), datapath.Address(u.input)
	if len(data) > 0 && at >= input && at < input+uintptr(len(u.input)) {
		u.sent.Add(int64(len(data)))
	}
	u.net.ranks[to].h.Data(u.rank, p, 0, &fabric.Buffer{B: data})
	u.h.PutDone(to, p)
}

// countingAllocator counts the bytes that it hands out. They are not Go's, so the heap does not grow.
type countingAllocator struct {
	datapath.Memory
	bytes *atomic.Int64
}

func (a *countingAllocator) Alloc(n int) ([]byte, error) {
	a.bytes.Add(int64(n))
	return a.Memory.Alloc(n)
}

// A Reduce-Scatter neither copies nor changes its input. The first data that a rank sends comes from the
// caller's memory. Scratch memory holds the sums that pass through, which are smaller than the input,
// and no other allocation is as large as a block.
func TestReduceScatterDoesNotCopy(t *testing.T) {
	const size, block = 8, 1 << 20 // scratch memory of that size comes from the allocator
	for _, algo := range p2p.Algorithms(wire.ReduceScatter) {
		n := newMemNet(size)
		inputs, want := make([][]byte, size), make([]byte, size*block)
		var sent, scratch atomic.Int64
		all := make([]*engine, size)
		for r, m := range n.ranks {
			inputs[r] = bytes.Repeat([]byte{byte(r + 1), byte(3 * r), byte(7*r + 5), 1}, size*block/4)
			if err := reduce.Into(want, inputs[r], reduce.U8, reduce.Sum); err != nil {
				t.Fatal(err)
			}
			var err error
			connect := func(h fabric.Handler) (fabric.Reliable, error) {
				m.h = h
				rel := reliable(uncopied{memReliable{m}, inputs[r], &sent})
				rel.Allocator = &countingAllocator{bytes: &scratch}
				return rel, nil
			}
			all[r], err = newEngine(Config{Config: process(r, size), Secret: []byte("secret"), Reliable: connect})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = all[r].Close() })
		}
		recv := make([][]byte, size)
		for r := range recv {
			recv[r] = make([]byte, block)
		}
		was := make([][]byte, size)
		for r := range was {
			was[r] = bytes.Clone(inputs[r])
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		everywhere(t, all, func(r int) Call {
			return Call{
				Kind: wire.ReduceScatter, Algo: algo, Counts: slices.Repeat([]int64{block}, size),
				Send: inputs[r], Recv: recv[r], Type: reduce.U8, Op: reduce.Sum,
			}
		})
		runtime.ReadMemStats(&after)
		for r := range all {
			if !bytes.Equal(recv[r], want[r*block:(r+1)*block]) {
				t.Errorf("%s: rank %d: wrong data", algo, r)
			}
			if !bytes.Equal(inputs[r], was[r]) {
				t.Errorf("%s: rank %d: the input has changed", algo, r)
			}
		}
		if least := int64(size * block); sent.Load() < least {
			t.Errorf("%s: all ranks send %d bytes from their inputs, want at least a block each", algo, sent.Load())
		}
		if whole := int64(size * size * block); scratch.Load() >= whole {
			t.Errorf("%s: all ranks take %d bytes of scratch memory, for inputs of %d", algo, scratch.Load(), whole)
		}
		if heap := after.TotalAlloc - before.TotalAlloc; heap >= block {
			t.Errorf("%s: all ranks together allocate %d bytes, and a block has %d", algo, heap, block)
		}
	}
}
