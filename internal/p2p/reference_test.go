package p2p_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/allcast/allcast/internal/clustertest"
	"github.com/allcast/allcast/internal/p2p"
	"github.com/allcast/allcast/internal/wire"
)

var kinds = wire.CallKinds()

// call is a collective on all ranks; the Rank of its Spec is ignored.
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
	if c.Kind.Blocks() {
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
	p, err := p2p.New(c.algo, c.specOf(rank))
	if err != nil {
		t.Fatalf("%v: %v", c, err)
	}
	return p
}

// specOf returns the call as one rank makes it. It hides the sizes that the rank does not know.
func (c call) specOf(rank int) p2p.Spec {
	s := c.Spec
	s.Rank = rank
	s.Counts, s.Receives = c.reference(0).Known(rank)
	return s
}

// reference says what the buffers hold before and after the call.
func (c call) reference(seed uint64) *clustertest.Reference {
	return &clustertest.Reference{Kind: c.Kind, Size: c.Size, Root: c.Root, Bytes: c.Bytes, Counts: c.Counts, Seed: seed}
}

// cluster makes the call on all ranks.
func (c call) cluster(t testing.TB, seed uint64) (*cluster[byte], *clustertest.Reference) {
	t.Helper()
	ref := c.reference(seed)
	bufs := make([][]byte, c.Size)
	for r := range bufs {
		bufs[r] = ref.Input(r)
	}
	return newCluster(t, c, seed, c.plans(t), bufs, sum), ref
}

func sum(have, came byte) byte { return have + came }

// verify runs the call and compares the buffers with the reference.
func (c call) verify(t testing.TB, seed uint64, loose bool) {
	t.Helper()
	w, ref := c.cluster(t, seed)
	w.loose = loose
	w.finish()
	if c.Kind == p2p.Barrier && w.early > 0 {
		w.Failf("%d ranks left before all had come", w.early)
	}
	for r, m := range w.ranks {
		if err := ref.Check(r, m.buf); err != nil {
			w.Failf("%v", err)
		}
	}
}

// subject is an algorithm under test.
type subject struct {
	*testing.T
	kind p2p.Kind
	algo string
}

// everyAlgorithm runs a subtest for each algorithm.
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
