package p2p_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/allcast/allcast/internal/p2p"
)

var kinds = []p2p.Kind{p2p.Broadcast, p2p.Allgather, p2p.ReduceScatter, p2p.Allreduce, p2p.Barrier}

func reduces(k p2p.Kind) bool { return k == p2p.ReduceScatter || k == p2p.Allreduce }

// blockwise tells the kinds that take Counts from those that take Bytes.
func blockwise(k p2p.Kind) bool { return k == p2p.Allgather || k == p2p.ReduceScatter }

// call is a collective on all ranks; the Rank of its Spec does not count.
type call struct {
	algo string
	p2p.Spec
}

func (c call) String() string {
	return fmt.Sprintf("%v/%s on %d ranks: root %d, %d bytes, counts %v, radix %d, segment %d, align %d",
		c.Kind, c.algo, c.Size, c.Root, c.Bytes, c.Counts, c.Radix, c.Segment, c.Align)
}

// sized gives every block, or the whole buffer, a size.
func (c call) sized(n int64) call {
	if blockwise(c.Kind) {
		c.Bytes, c.Counts = 0, slices.Repeat([]int64{n}, c.Size)
	} else if c.Kind != p2p.Barrier {
		c.Bytes, c.Counts = n, nil
	}
	return c
}

func (c call) plans(t testing.TB) []*p2p.Plan {
	t.Helper()
	plans := make([]*p2p.Plan, c.Size)
	for r := range plans {
		plans[r] = c.plan(t, r)
	}
	return plans
}

func (c call) plan(t testing.TB, rank int) *p2p.Plan {
	t.Helper()
	c.Rank = rank
	p, err := p2p.New(c.algo, c.Spec)
	if err != nil {
		t.Fatalf("%v: %v", c, err)
	}
	return p
}

// displs is where the blocks of an Allgather or a Reduce-Scatter begin.
func (c call) displs() []int64 {
	d := make([]int64, c.Size+1)
	for i, n := range c.Counts {
		d[i+1] = d[i] + n
	}
	return d
}

func (c call) total() int64 {
	if blockwise(c.Kind) {
		return c.displs()[c.Size]
	}
	return c.Bytes
}

// owned is the range of the buffer that is the rank's own from the beginning.
func (c call) owned(rank int) (lo, hi int64) {
	switch {
	case reduces(c.Kind) || c.Kind == p2p.Broadcast && rank == c.Root:
		return 0, c.total()
	case c.Kind == p2p.Allgather:
		return c.displs()[rank], c.displs()[rank+1]
	}
	return 0, 0
}

// wanted is the range that the rank must have in the end.
func (c call) wanted(rank int) (lo, hi int64) {
	if c.Kind == p2p.ReduceScatter {
		return c.displs()[rank], c.displs()[rank+1]
	}
	return 0, c.total()
}

// inputs are the buffers of all ranks at the start, noise where nothing is
// owned, and the plain reference for what they must hold in the end.
func (c call) inputs(seed uint64) (bufs [][]byte, want []byte) {
	noise := rand.NewPCG(seed, 1)
	total := c.total()
	want = make([]byte, total)
	for r := range c.Size {
		buf := make([]byte, 0, total+8)
		for int64(len(buf)) < total {
			buf = binary.LittleEndian.AppendUint64(buf, noise.Uint64())
		}
		bufs = append(bufs, buf[:total])
		lo, hi := c.owned(r)
		for i, x := range buf[lo:hi] {
			want[lo+int64(i)] += x
		}
	}
	return bufs, want
}

func sum(have, came byte) byte { return have + came }

// verify runs the call and compares what every rank has in the end with the
// reference.
func (c call) verify(t testing.TB, seed uint64, loose bool) {
	t.Helper()
	bufs, want := c.inputs(seed)
	w := newCluster(seed, c.plans(t), bufs, sum)
	w.loose = loose
	w.run(forever)
	if err := w.check(); err != nil {
		t.Fatalf("%v, seed %d: %v", c, seed, err)
	}
	if c.Kind == p2p.Barrier && w.early > 0 {
		t.Fatalf("%v, seed %d: %d ranks left before all had come", c, seed, w.early)
	}
	for r, got := range w.results {
		lo, hi := c.wanted(r)
		if !bytes.Equal(got[lo:hi], want[lo:hi]) {
			for lo < hi && got[lo] == want[lo] {
				lo++
			}
			t.Fatalf("%v, seed %d: rank %d has %#02x at byte %d, want %#02x", c, seed, r, got[lo], lo, want[lo])
		}
	}
}

// subject is an algorithm under test.
type subject struct {
	*testing.T
	kind p2p.Kind
	algo string
}

// everyAlgorithm runs a test for each algorithm, which its name tells.
func everyAlgorithm(t *testing.T, test func(subject)) {
	t.Helper()
	for _, kind := range kinds {
		for _, algo := range p2p.Algorithms(kind) {
			t.Run(kind.String()+"/"+algo, func(t *testing.T) {
				t.Parallel()
				test(subject{t, kind, algo})
			})
		}
	}
}
