package p2p_test

import (
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/allcast/allcast/internal/p2p"
)

// An unknown algorithm is an error that lists those there are.
func TestUnknownAlgorithm(t *testing.T) {
	for _, kind := range kinds {
		for _, algo := range []string{"", "mcast", "Ring", "frobnicate"} {
			_, err := p2p.New(algo, p2p.Spec{Kind: kind, Size: 4})
			if !errors.Is(err, p2p.ErrSpec) {
				t.Errorf("%v/%s: error %v", kind, algo, err)
				continue
			}
			for _, want := range append(p2p.Algorithms(kind), kind.String()) {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%v/%s: %q does not say %q", kind, algo, err, want)
				}
			}
		}
	}
	if _, err := p2p.New("ring", p2p.Spec{Size: 4}); !errors.Is(err, p2p.ErrSpec) {
		t.Errorf("a kind that there is not: error %v", err)
	}
}

func TestBadSpecs(t *testing.T) {
	for _, c := range []struct {
		algo string
		spec p2p.Spec
		want string
	}{
		{"binomial", p2p.Spec{Kind: p2p.Broadcast}, "rank 0 of 0"},
		{"binomial", p2p.Spec{Kind: p2p.Broadcast, Size: -1}, "rank 0 of -1"},
		{"binomial", p2p.Spec{Kind: p2p.Broadcast, Size: 4, Rank: 4}, "rank 4 of 4"},
		{"binomial", p2p.Spec{Kind: p2p.Broadcast, Size: 4, Rank: -1}, "rank -1 of 4"},
		{"binomial", p2p.Spec{Kind: p2p.Broadcast, Size: 4, Root: 4}, "0 to 3"},
		{"binomial", p2p.Spec{Kind: p2p.Broadcast, Size: 4, Root: -1}, "0 to 3"},
		{"binomial", p2p.Spec{Kind: p2p.Broadcast, Size: 4, Bytes: -1}, "0 or more"},
		{"chain", p2p.Spec{Kind: p2p.Broadcast, Size: 4, Segment: -1}, "0 or more"},
		{"knomial", p2p.Spec{Kind: p2p.Broadcast, Size: 4, Radix: 1}, "at least 2"},
		{"knomial", p2p.Spec{Kind: p2p.Broadcast, Size: 4, Radix: -1}, "at least 2"},
		{"ring", p2p.Spec{Kind: p2p.Allgather, Size: 4}, "0 sizes for 4 ranks"},
		{"ring", p2p.Spec{Kind: p2p.Allgather, Size: 2, Counts: []int64{1, -1}}, "0 or more"},
		{"ring", p2p.Spec{Kind: p2p.ReduceScatter, Size: 2, Counts: []int64{1, 2, 3}}, "3 sizes for 2 ranks"},
	} {
		_, err := p2p.New(c.algo, c.spec)
		if !errors.Is(err, p2p.ErrSpec) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s %+v: error %v, want one that says %q", c.algo, c.spec, err, c.want)
		}
	}
}

// A Barrier has no buffer. Counts that it is given all the same, for other ranks
// than there are, must not break it.
func TestBarrierWithCounts(t *testing.T) {
	defer func() {
		if v := recover(); v != nil {
			t.Errorf("New panics: %v", v)
		}
	}()
	p, err := p2p.New("dissemination", p2p.Spec{Kind: p2p.Barrier, Size: 2, Counts: []int64{1, 2, 3}})
	if (p == nil) != errors.Is(err, p2p.ErrSpec) {
		t.Errorf("plan %v, error %v", p, err)
	}
}

// Whatever a Spec says, New returns a plan or an error.
func TestAnySpec(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		kind := rapid.SampledFrom(append([]p2p.Kind{0, 99}, kinds...)).Draw(t, "kind")
		algo := rapid.SampledFrom(append(p2p.Algorithms(kind), "frobnicate")).Draw(t, "algo")
		s := p2p.Spec{
			Kind:    kind,
			Rank:    rapid.IntRange(-1, 4).Draw(t, "rank"),
			Size:    rapid.IntRange(-1, 9).Draw(t, "size"),
			Root:    rapid.IntRange(-1, 4).Draw(t, "root"),
			Bytes:   rapid.Int64Range(-1, 200).Draw(t, "bytes"),
			Counts:  rapid.SliceOfN(rapid.Int64Range(0, 20), 0, 12).Draw(t, "counts"),
			Radix:   rapid.IntRange(0, 9).Draw(t, "radix"),
			Segment: rapid.Int64Range(-1, 30).Draw(t, "segment"),
			Align:   rapid.Int64Range(-1, 9).Draw(t, "align"),
		}
		if p, err := p2p.New(algo, s); (p == nil) != errors.Is(err, p2p.ErrSpec) {
			t.Fatalf("%s %+v: plan %v, error %v", algo, s, p, err)
		}
	})
}

// A plan is a function of its Spec, which it leaves alone; the digest is the
// same on all ranks.
func TestPlanIsAFunctionOfItsSpec(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := drawCall(t, 20)
		counts := slices.Clone(c.Counts)
		first := planOf(t, c, 0)
		for r := range c.Size {
			a, b := planOf(t, c, r), planOf(t, c, r)
			if !reflect.DeepEqual(a, b) {
				t.Fatalf("%v: rank %d: two plans:\n%+v\n%+v", c, r, a, b)
			}
			if a.Digest != first.Digest {
				t.Fatalf("%v: ranks 0 and %d have different digests", c, r)
			}
		}
		if !slices.Equal(counts, c.Counts) {
			t.Fatalf("%v: the counts were %v", c, counts)
		}
	})
}

// Sizes that do not fit a machine are errors, and neither panics nor hours of work.
func TestAbsurdSpecs(t *testing.T) {
	const huge = 1<<63 - 1
	for _, c := range []struct {
		algo string
		spec p2p.Spec
	}{
		{"binomial", p2p.Spec{Kind: p2p.Broadcast, Size: 4, Bytes: huge, Align: 8}},
		{"binomial", p2p.Spec{Kind: p2p.Broadcast, Size: 4, Bytes: 8, Align: huge}},
		{"chain", p2p.Spec{Kind: p2p.Broadcast, Size: 4, Bytes: 1 << 50, Segment: 1}},
		{"chain", p2p.Spec{Kind: p2p.Broadcast, Size: 4, Bytes: 1 << 50}},
		{"ring", p2p.Spec{Kind: p2p.Allgather, Size: 2, Counts: []int64{huge, 1}}},
		{"ring", p2p.Spec{Kind: p2p.ReduceScatter, Size: 3, Counts: []int64{huge, huge, 2}}},
	} {
		if _, err := p2p.New(c.algo, c.spec); !errors.Is(err, p2p.ErrSpec) {
			t.Errorf("%s %+v: error %v", c.algo, c.spec, err)
		}
	}
	p, err := p2p.New("knomial", p2p.Spec{Kind: p2p.Broadcast, Size: 4, Bytes: 1, Radix: huge})
	if err != nil || len(p.Sends) != 3 {
		t.Errorf("a flat tree: plan %+v, error %v", p, err)
	}
}

// The blocks of a buffer that is cut differ by at most one unit, however large it is.
func TestLargeBufferIsCutEvenly(t *testing.T) {
	const size, units = 1000, 1<<52 + 7
	p, err := p2p.New("ring", p2p.Spec{Kind: p2p.Allreduce, Size: size, Bytes: units * 8, Align: 8})
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range p.Sends {
		if s.Len < units/size*8 || s.Len > (units/size+1)*8 {
			t.Fatalf("a block of %d bytes", s.Len)
		}
	}
}
