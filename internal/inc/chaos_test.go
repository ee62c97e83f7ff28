package inc

import (
	"bytes"
	"flag"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/allcast/allcast/internal/reduce"
	"github.com/allcast/allcast/internal/step"
	"github.com/allcast/allcast/internal/testenv"
)

var seeds = flag.Uint64("seeds", 2000, "seeds of TestChaos")

func TestMain(m *testing.M) {
	testenv.Rapid(1000)
	m.Run()
}

// randomTree returns the text of a tree: some aggregators serve no ranks, some have one child.
func randomTree(r *rand.Rand, size int) string {
	nodes := 1 + r.IntN(min(5, size))
	ranks := make([][]string, nodes)
	for rank, node := range r.Perm(size) {
		if node >= nodes { // each of the first nodes has at least one rank
			node = r.IntN(nodes)
		}
		ranks[node] = append(ranks[node], fmt.Sprint(rank))
	}
	var list []string
	for node := range nodes {
		e := fmt.Sprintf("h%d:1=%s", node, strings.Join(ranks[node], ","))
		if node > 0 {
			e += fmt.Sprintf(">h%d:1", r.IntN(node))
		} else if r.IntN(2) == 0 {
			list = append(list, "top:1")
			e += ">top:1"
		}
		list = append(list, e)
	}
	r.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	return strings.Join(list, ";")
}

// randomReduction returns a type and an operator that applies to it.
func randomReduction(r *rand.Rand) (reduce.Type, reduce.Op) {
	for {
		typ, op := reduce.F32+reduce.Type(r.IntN(int(reduce.Bool))), reduce.Sum+reduce.Op(r.IntN(int(reduce.PremulSum)))
		if b := make([]byte, 8); reduce.Into(b, b, typ, op) == nil {
			return typ, op
		}
	}
}

// randomCounts returns block sizes, in whole elements.
func randomCounts(r *rand.Rand, size, element, chunk int) []int64 {
	counts := make([]int64, size)
	most := r.IntN(40*chunk/element + 1)
	for i := range counts {
		switch n := most; r.IntN(4) {
		case 0:
			counts[i] = 0
		case 1:
			n = r.IntN(most + 1)
			fallthrough
		default:
			counts[i] = int64(n * element)
		}
	}
	return counts
}

// randomFaults returns what goes wrong within the first milliseconds.
func randomFaults(r *rand.Rand, tree *Tree) (f faults) {
	if r.IntN(2) == 0 {
		f.loss = []float64{0.001, 0.01, 0.05, 0.2}[r.IntN(4)]
	}
	if r.IntN(2) == 0 {
		f.dup = r.Float64() / 4
	}
	if r.IntN(2) == 0 {
		f.jitter = step.Time(r.Int64N(int64(2 * step.Millisecond)))
	}
	interval := func(longest step.Time) [2]step.Time {
		from := step.Time(r.Int64N(int64(5 * step.Millisecond)))
		return [2]step.Time{from, from + step.Time(r.Int64N(int64(longest)))}
	}
	if r.IntN(3) == 0 {
		f.dead, f.crash = map[int][2]step.Time{}, map[int]bool{}
		for range 1 + r.IntN(2) {
			node := r.IntN(len(tree.Nodes))
			f.dead[node], f.crash[node] = interval([]step.Time{step.Millisecond, step.Second, 1000 * step.Second}[r.IntN(3)]),
				r.IntN(2) == 0
		}
	}
	if r.IntN(4) == 0 {
		f.noticed = map[int]step.Time{r.IntN(tree.Size()): interval(1)[0]}
	}
	if r.IntN(4) == 0 {
		i := interval(300 * step.Millisecond)
		f.pauses = map[int][2]step.Time{r.IntN(tree.Size()): {step.Second + i[0], step.Second + i[1]}}
	}
	if r.IntN(4) == 0 {
		f.slow = map[int]step.Time{r.IntN(tree.Size()): step.Time(r.Int64N(int64(step.Millisecond)))}
	}
	return f
}

// Whatever happens to datagrams, aggregators and ranks, every operation ends in time with the right sum, and the
// invariants of the protocol hold.
func TestChaos(t *testing.T) {
	var slowest step.Time
	for seed := range *seeds {
		r := rand.New(rand.NewPCG(seed, 3))
		size := 1 + r.IntN(9)
		text := randomTree(r, size)
		tree := mustTree(t, text, size)
		chunk := 8 * (1 + r.IntN(8))
		w := newWorld(t, fmt.Sprintf("seed %d, %s", seed, text), seed, tree, 1+uint32(r.IntN(64)), chunk)
		for range 1 + r.IntN(3) {
			typ, op := randomReduction(r)
			x := w.addOp(randomCounts(r, size, typ.Size(), chunk), chunk, typ, op)
			if r.IntN(4) == 0 {
				x.widths[r.IntN(size)] = uint32(r.IntN(int(w.window) + 1))
			}
			checkReference(w, x)
		}
		w.faults = randomFaults(r, tree)
		w.run(5 * step.Second)
		slowest = max(slowest, w.ended)
	}
	t.Logf("the slowest took %d ms", (slowest-step.Second)/step.Millisecond)
}

// checkReference compares the expected sums of integers with a plain loop. It shares no code with the protocol.
func checkReference(w *world, x *operation) {
	if x.typ < reduce.I8 || x.typ == reduce.Bool || x.op != reduce.Sum {
		return
	}
	size, off := x.typ.Size(), int64(0)
	for owner, n := range x.counts {
		got := make([]byte, n)
		for at := 0; at < int(n); at += size {
			sum := uint64(0)
			for _, in := range x.inputs {
				for i := range size {
					sum += uint64(in[off+int64(at+i)]) << (8 * i)
				}
			}
			for i := range size {
				got[at+i] = byte(sum >> (8 * i))
			}
		}
		if !bytes.Equal(got, x.want[owner]) {
			w.fatalf("owner %d: Combine made %x, want %x", owner, x.want[owner], got)
		}
		off += n
	}
}
