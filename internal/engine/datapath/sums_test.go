package datapath

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/allcast/allcast/internal/fabric"
	"github.com/allcast/allcast/internal/p2p"
	"github.com/allcast/allcast/internal/reduce"
	"github.com/allcast/allcast/internal/step"
	"github.com/allcast/allcast/internal/wire"
)

// byteSums is a reduction of bytes. Its result is [at, at+n) of a buffer of size bytes, and its plan
// forwards sums of some ranges.
func byteSums(pool *scratch, size, at, n int, partials ...p2p.Partial) *sums {
	b := &Buffers{
		Reduces: true, Type: reduce.U8, Op: reduce.Sum, Own: int64(at), Send: make([]byte, size), Recv: make([]byte, n),
		Plan: &p2p.Plan{Partials: partials},
	}
	for i := range b.Send {
		b.Send[i] = byte(3 * i)
	}
	s := newSums(b, pool)
	return &s
}

// takeAll takes a piece, or a part of one, that begins at off.
func (s *sums) takeAll(r p2p.Recv, off int64, b []byte) {
	var mu sync.Mutex
	s.take(mu.Lock, mu.Unlock, &r, off, b)
}

// A piece may cover several areas of scratch memory and the result. Each part of it goes where its sum
// is made, the input stays as it is, and memory is only taken where something arrives.
func TestSumsAcrossAreas(t *testing.T) {
	withScratch(t, func(x *scratchTest) {
		t, pool := x.T, &x.scratch
		s := byteSums(pool, 40, 16, 8, p2p.Partial{Off: 0, Len: 6, Sends: 1}, p2p.Partial{Off: 6, Len: 10, Sends: 1},
			p2p.Partial{Off: 24, Len: 8, Sends: 1}, p2p.Partial{Off: 32, Len: 8, Sends: 1})
		input := bytes.Clone(s.input)
		piece := make([]byte, 28)
		for i := range piece {
			piece[i] = byte(100 + i)
		}
		const off = 2
		s.takeAll(p2p.Recv{Reduce: true, First: true}, off, piece)
		s.takeAll(p2p.Recv{Reduce: true}, off, piece)
		for i := range piece {
			if got, want := s.memory(int64(off+i), 1)[0], input[off+i]+2*piece[i]; got != want {
				t.Errorf("byte %d: got %d, want %d", off+i, got, want)
			}
		}
		if !bytes.Equal(s.input, input) {
			t.Error("the input has changed")
		}
		if mem := s.areas[3].mem; mem != nil {
			t.Error("memory was taken for a range in which nothing arrived")
		}
		if got := s.source(off, 4, true); !same(got, s.input[off:]) || len(got) != 4 {
			t.Errorf("%d bytes of the input are sent from elsewhere", len(got))
		}
		if got := s.source(off, 4, false); !same(got, s.areas[0].mem[off:]) || len(got) != 4 {
			t.Errorf("%d bytes of a sum are sent from elsewhere", len(got))
		}
	})
}

// The first sum of a long range is made in parts that stay in the cache. The borders must fit.
func TestSumsOfLongPieces(t *testing.T) {
	withScratch(t, func(x *scratchTest) {
		t, pool := x.T, &x.scratch
		for _, n := range []int{16<<10 - 1, 16 << 10, 16<<10 + 1, 50_000} {
			s := byteSums(pool, n+8, 0, 4, p2p.Partial{Off: 4, Len: int64(n + 4), Sends: 1})
			piece := make([]byte, n)
			for i := range piece {
				piece[i] = byte(i * 7)
			}
			s.takeAll(p2p.Recv{Reduce: true, First: true}, 2, piece)
			for i := range piece {
				if got, want := s.memory(int64(2+i), 1)[0], s.input[2+i]+piece[i]; got != want {
					t.Fatalf("%d bytes: byte %d: got %d, want %d", n, i, got, want)
				}
			}
			s.release()
		}
	})
}

// A sum that only passes through gives its memory back after its last send, and not before. Memory that
// was never sent comes back with release.
func TestSumsGiveMemoryBack(t *testing.T) {
	withScratch(t, func(x *scratchTest) {
		t, pool, sys := x.T, &x.scratch, &x.sys
		const n = 1 << scratchLarge
		s := byteSums(pool, 3*n, 2*n, n, p2p.Partial{Off: 0, Len: n, Sends: 2}, p2p.Partial{Off: n, Len: n, Sends: 1})
		first := s.memory(0, n)
		second := s.memory(n+5, n)
		if len(first) != n || len(second) != n-5 || len(sys.inUse) != 2 {
			t.Fatalf("%d and %d bytes; %d pieces of the system", len(first), len(second), len(sys.inUse))
		}
		s.sent(0)
		if got := pool.get(n); same(got, first) {
			t.Error("memory came back before it was sent for the last time")
		} else {
			pool.put(got)
		}
		s.sent(n / 2)
		if got := pool.get(n); !same(got, first) {
			t.Error("memory did not come back when it was sent for the last time")
		} else {
			pool.put(got)
		}
		s.sent(2 * n) // the result, which is not scratch memory
		s.release()
		s.release() // does no harm
		if pool.close(); len(sys.inUse) != 0 {
			t.Errorf("%d pieces did not come back", len(sys.inUse))
		}
	})
}

// In place, the first sum is made where the input is. The Allgather of an Allreduce overwrites the sums
// there.
func TestSumsInPlace(t *testing.T) {
	buf := []byte{1, 2, 3, 4, 5, 6}
	plan := &p2p.Plan{Partials: []p2p.Partial{{Len: 6, Sends: 1}}}
	s := newSums(&Buffers{Reduces: true, Type: reduce.U8, Op: reduce.Sum, Recv: buf, Plan: plan}, nil)
	if len(s.areas) != 0 {
		t.Errorf("%d areas: all sums are made in the result", len(s.areas))
	}
	s.takeAll(p2p.Recv{Reduce: true, First: true}, 1, []byte{10, 20})
	s.takeAll(p2p.Recv{}, 4, []byte{7})
	if want := []byte{1, 12, 23, 4, 7, 6}; !bytes.Equal(buf, want) {
		t.Errorf("got %v, want %v", buf, want)
	}
	if !same(s.source(2, 3, true), s.source(2, 3, false)) {
		t.Error("the input and its sums are apart")
	}
	// A Reduce-Scatter whose result is its part of the input.
	buf = []byte{1, 2, 3, 4, 5, 6}
	s = newSums(&Buffers{
		Reduces: true, Type: reduce.U8, Op: reduce.Sum, Send: buf, Recv: buf[2:4], Own: 2, Plan: &p2p.Plan{},
	}, nil)
	s.takeAll(p2p.Recv{Reduce: true, First: true}, 2, []byte{10, 20})
	s.takeAll(p2p.Recv{Reduce: true}, 3, []byte{30})
	if want := []byte{1, 2, 13, 54, 5, 6}; !bytes.Equal(buf, want) {
		t.Errorf("got %v, want %v", buf, want)
	}
}

// A plan that receives where it has no memory is a mistake in the plan.
func TestSumsWithoutMemory(t *testing.T) {
	s := byteSums(nil, 8, 4, 4)
	defer func() {
		if recover() == nil {
			t.Error("it did not panic")
		}
	}()
	s.memory(0, 4)
}

// reducer is one rank of a reduction, without engine and network.
type reducer struct {
	op     *p2p.Executor
	pieces *pieces
	bufs   *Buffers
	input  []byte // a copy
}

// flying is a piece on its way. Its bytes are read when it arrives.
type flying struct {
	from  int
	piece fabric.Piece
	data  []byte
}

// reduction runs a reduction on all ranks, in any order that the network allows, and in any parts.
type reduction struct {
	*testing.T
	rng   *rand.Rand
	ranks []*reducer
	path  map[[2]int][]flying // by sender and receiver
}

// In any order and in any parts, results are correct, inputs stay unchanged, and all scratch memory comes
// back.
func TestReductionsInParts(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 0x5c))
		kind := []wire.CallKind{wire.ReduceScatter, wire.Allreduce}[r.IntN(2)]
		algos := p2p.Algorithms(kind)
		algo := algos[r.IntN(len(algos))]
		counts := make([]int64, 2+r.IntN(8))
		for i := range counts {
			counts[i] = 4 * r.Int64N(40)
		}
		if seed%100 == 0 { // memory of the system
			counts = slices.Repeat([]int64{3 << 18}, 5)
		}
		name := fmt.Sprintf("seed %d: %v by %s, %v bytes", seed, kind, algo, counts)
		withScratch(t, func(x *scratchTest) {
			t, pool, sys := x.T, &x.scratch, &x.sys
			n := &reduction{T: t, rng: r, path: map[[2]int][]flying{}}
			n.join(kind, algo, counts, pool)
			n.run()
			n.check(name)
			if pool.close(); len(sys.inUse) != 0 {
				t.Errorf("%s: %d pieces of scratch memory did not come back", name, len(sys.inUse))
			}
		})
		if t.Failed() {
			return
		}
	}
}

// join prepares all ranks. Some of them work in place.
func (n *reduction) join(kind wire.CallKind, algo string, counts []int64, pool *scratch) {
	n.Helper()
	segment := []int64{0, 4, 12, 100_000}[n.rng.IntN(4)]
	if counts[0] > 1<<16 {
		segment = []int64{0, 1 << 19}[n.rng.IntN(2)]
	}
	total, own := int64(0), make([]int64, len(counts))
	for rank, n := range counts {
		own[rank] = total
		total += n
	}
	for rank := range counts {
		plan, err := p2p.New(algo, p2p.Spec{
			Kind: kind, Rank: rank, Size: len(counts), Counts: counts, Bytes: total, Segment: segment, Align: 4,
		})
		if err != nil {
			n.Fatal(err)
		}
		k := &Buffers{
			Group:   &Group{Rank: rank, Members: make([]int, len(counts))},
			Reduces: true, Type: reduce.U32, Op: reduce.Sum, Plan: plan,
		}
		input := make([]byte, total)
		_, _ = rand.NewChaCha8([32]byte{byte(n.rng.Uint32()), byte(rank)}).Read(input) // it never fails
		k.Send = bytes.Clone(input)
		if kind == wire.ReduceScatter {
			k.Own = own[rank]
			k.Recv = make([]byte, counts[rank])
			if n.rng.IntN(2) == 0 {
				k.Recv = k.Send[k.Own : k.Own+counts[rank]]
			}
		} else if k.Recv = make([]byte, total); n.rng.IntN(2) == 0 {
			k.Send, k.Recv = nil, k.Send
		}
		inbox := p2p.NewInbox(plan)
		n.ranks = append(n.ranks, &reducer{p2p.NewExecutor(p2p.Config{Plan: plan}), newPieces(k, inbox, pool), k, input})
	}
}

// run delivers all pieces, one at a time.
func (n *reduction) run() {
	n.Helper()
	for rank, r := range n.ranks {
		n.do(rank, r.op.Step(1, step.Event{Kind: step.EvStart}, nil))
	}
	for len(n.path) > 0 {
		// One of the paths that carry something, in an order that depends on the seed alone.
		paths := make([][2]int, 0, len(n.path))
		for p := range n.path {
			paths = append(paths, p)
		}
		slices.SortFunc(paths, func(a, b [2]int) int { return slices.Compare(a[:], b[:]) })
		p := paths[n.rng.IntN(len(paths))]
		f := n.path[p][0]
		if n.path[p] = n.path[p][1:]; len(n.path[p]) == 0 {
			delete(n.path, p)
		}
		n.arrive(p[1], f)
		sender := n.ranks[f.from]
		sender.pieces.sent(p[1], f.piece.Nth)
		n.do(f.from, sender.op.Step(1, step.Event{Kind: step.EvSent, N: 1}, nil))
	}
}

// do carries out the actions of a rank.
func (n *reduction) do(rank int, acts []step.Action) {
	n.Helper()
	r := n.ranks[rank]
	for i := range acts {
		switch a := &acts[i]; a.Kind {
		case step.ActSend:
			n.do(a.To, n.ranks[a.To].op.Step(1, step.Event{Kind: step.EvMsg, From: rank, Msg: &a.Msg}, nil))
		case step.ActPut:
			data := r.pieces.source(a.To, a.PSN, &p2p.Send{Off: a.Off, Len: a.Len, Input: a.Input, Parts: a.Parts})
			p := [2]int{rank, a.To}
			n.path[p] = append(n.path[p], flying{rank, fabric.Piece{Nth: a.PSN, Len: a.Len}, data})
		case step.ActComplete:
			r.pieces.finish(r.bufs.Plan.After)
		case step.ActClosed:
		default:
			n.Fatalf("rank %d wants %+v", rank, a)
		}
	}
}

// arrive hands a piece over in parts of whole elements.
func (n *reduction) arrive(rank int, f flying) {
	n.Helper()
	r := n.ranks[rank]
	off := int64(0)
	for more := true; more; {
		end := f.piece.Len
		if n.rng.IntN(2) == 0 {
			end = min(end, off+4*(1+n.rng.Int64N(1+f.piece.Len/8)))
		}
		prefix, left, done, err := r.pieces.take(f.from, f.piece, off, f.data[off:end])
		if more = end < f.piece.Len; err != nil || more && done {
			n.Fatalf("rank %d: bytes %d-%d of %d: done %v, %v", rank, off, end, f.piece.Len, done, err)
		}
		if off = end; done {
			n.do(rank, r.op.Received(1, prefix, left, nil))
		}
	}
}

// check compares all results, and looks for changed inputs and memory that was not given back.
func (n *reduction) check(name string) {
	n.Helper()
	want := make([]byte, len(n.ranks[0].input))
	for _, r := range n.ranks {
		if err := reduce.Into(want, r.input, reduce.U32, reduce.Sum); err != nil {
			n.Fatal(err)
		}
	}
	for rank, r := range n.ranks {
		if r.op.Phase() != step.Closed {
			n.Fatalf("%s: rank %d is %v, it misses %s", name, rank, r.op.Phase(), r.op.Missing(nil))
		}
		if k := r.bufs; !bytes.Equal(k.Recv, want[k.Own:k.Own+int64(len(k.Recv))]) {
			n.Errorf("%s: rank %d: wrong data", name, rank)
		}
		if k := r.bufs; k.Send != nil {
			if same(k.Recv, k.Send[k.Own:]) {
				copy(r.input[k.Own:], k.Recv) // it works in place
			}
			if !bytes.Equal(k.Send, r.input) {
				n.Errorf("%s: rank %d: the input has changed", name, rank)
			}
		}
		for _, a := range r.pieces.sums.areas {
			if a.Off < r.bufs.Plan.Output && (a.mem != nil || a.Sends != 0) { // others are given back at the end
				n.Errorf("%s: rank %d: %+v was sent, and its memory is still in use", name, rank, a.Partial)
			}
		}
		if p := r.pieces; len(p.arriving)+len(p.held)+len(p.sending) > 0 {
			n.Errorf("%s: rank %d: %d pieces arrive, %d are held, %d are sent",
				name, rank, len(p.arriving), len(p.held), len(p.sending))
		}
		r.pieces.release()
	}
}
