package allcast_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/allcast/allcast"
	"github.com/allcast/allcast/allcasttest"
	"github.com/allcast/allcast/internal/aggregate"
	"github.com/allcast/allcast/internal/calltest"
	"github.com/allcast/allcast/internal/inc"
	"github.com/allcast/allcast/internal/joinhook"
	"github.com/allcast/allcast/internal/reduce"
	"github.com/allcast/allcast/internal/testenv"
)

// A site is a tree of aggregators in this process.
type site struct {
	t       testing.TB
	servers []*aggregate.Server // the first one is at the top
	configs []aggregate.Config
	text    string
}

var siteKey = []byte("the key of this site")

// newSite starts aggregators. One serves all ranks if there is one group of ranks; otherwise each group has its own,
// below one at the top.
func newSite(t testing.TB, groups ...string) *site {
	t.Helper()
	s := &site{t: t}
	retry := aggregate.Timing{Retry: 50 * time.Millisecond, Expiry: time.Minute} // a leaf finds a restarted top soon
	top := s.start(aggregate.Config{Listen: "127.0.0.1:0", SiteKey: siteKey})
	if len(groups) == 1 {
		s.text = top + "=" + groups[0]
		return s
	}
	s.text = top
	for _, ranks := range groups {
		leaf := s.start(aggregate.Config{Listen: "127.0.0.1:0", Parent: top, SiteKey: siteKey, Timing: retry})
		s.text += ";" + leaf + "=" + ranks + ">" + top
	}
	return s
}

func (s *site) start(cfg aggregate.Config) (addr string) {
	s.t.Helper()
	server, err := aggregate.Listen(cfg)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = server.Close() })
	cfg.Listen = server.Addr().String()
	s.servers, s.configs = append(s.servers, server), append(s.configs, cfg)
	return cfg.Listen
}

// restart starts an aggregator again that was closed.
func (s *site) restart(i int) error {
	server, err := aggregate.Listen(s.configs[i])
	if err != nil {
		return err
	}
	s.t.Cleanup(func() { _ = server.Close() })
	s.servers[i] = server
	return nil
}

func (s *site) options() allcast.Options {
	return allcast.Options{Aggregators: s.text, SiteKey: siteKey}
}

// siteHooks give aggregators on a busy machine time to be ready when Join returns, and let calls use them again soon.
var siteHooks = joinhook.Hooks{AggregatorPatience: testenv.Patience, AggregatorRetry: 50 * time.Millisecond}

// run is allcasttest.Run for a job that uses these aggregators.
func (s *site) run(t *testing.T, size int, o allcast.Options, f func(context.Context, *allcast.Comm) error) {
	t.Helper()
	ctx := joinhook.With(t.Context(), siteHooks)
	for rank, err := range allcasttest.JoinAll(ctx, slices.Repeat([]allcast.Options{o}, size), f) {
		if err != nil {
			t.Errorf("rank %d: %v", rank, err)
		}
	}
}

func (s *site) tree(size int) *inc.Tree {
	s.t.Helper()
	tree, err := inc.ParseTree(s.text, size)
	if err != nil {
		s.t.Fatal(err)
	}
	return tree
}

// elements returns a rank's input of n elements. Sums of floats depend on the order of addition, but none is NaN.
func elements(t reduce.Type, rank, n int) []byte {
	r := rand.New(rand.NewPCG(uint64(t), uint64(rank)))
	b := make([]byte, n*t.Size())
	for i := range n {
		at := b[i*t.Size():]
		x := float32(math.Ldexp(1+r.Float64(), r.IntN(5)-2))
		if r.IntN(2) == 0 {
			x = -x
		}
		switch t {
		case reduce.F32:
			binary.LittleEndian.PutUint32(at, math.Float32bits(x))
		case reduce.F64:
			binary.LittleEndian.PutUint64(at, math.Float64bits(float64(x)/3))
		case reduce.F16:
			binary.LittleEndian.PutUint16(at, reduce.F32ToF16(x))
		case reduce.BF16:
			binary.LittleEndian.PutUint16(at, reduce.F32ToBF16(x))
		default:
			for k := range t.Size() {
				at[k] = byte(r.Uint32())
			}
		}
	}
	return b
}

// reduced is the result of a reduction of all ranks' elements: what the tree makes of blocks of the given sizes.
func reduced(tree *inc.Tree, t reduce.Type, op reduce.Op, blocks []int) []byte {
	total := 0
	for _, n := range blocks {
		total += n
	}
	size := tree.Size()
	inputs := make([][]byte, size)
	for r := range inputs {
		inputs[r] = elements(t, r, total/t.Size())
		if op == reduce.PremulSum {
			check(reduce.Scale(inputs[r], inputs[r], t, factor(r)))
		}
	}
	add := func(dst, src []byte) { check(reduce.Into(dst, src, t, op)) }
	result := make([]byte, total)
	at := 0
	for owner, n := range blocks {
		if n == 0 {
			continue
		}
		sum := result[at : at+n]
		tree.Combine(sum, owner, make([]byte, tree.Depth()*n), func(r int) []byte { return inputs[r][at : at+n] }, add)
		add(sum, inputs[owner][at:at+n])
		at += n
	}
	check(reduce.Finish(result, t, op, size))
	return result
}

func factor(rank int) float64 { return 1 + float64(rank)/8 }

func check(err error) {
	if err != nil {
		panic(err)
	}
}

// operators lists the operators of an element type.
func operators(t reduce.Type) (ops []reduce.Op) {
	for op := reduce.Sum; op <= reduce.PremulSum; op++ {
		if reduce.Into(nil, nil, t, op) == nil {
			ops = append(ops, op)
		}
	}
	return ops
}

// blocksOf divides n elements among ranks as an Allreduce does.
func blocksOf(t reduce.Type, n, size int) (blocks []int) {
	for r := range size {
		blocks = append(blocks, (n*(r+1)/size-n*r/size)*t.Size())
	}
	return blocks
}

// Every operator of every type has the result of the tree's order of addition, bit for bit.
func TestIncTypesAndOperators(t *testing.T) {
	const size = 5
	s := newSite(t, "0,2", "1,3-4")
	tree := s.tree(size)
	s.run(t, size, s.options(), func(ctx context.Context, c *allcast.Comm) error {
		for typ := reduce.F32; typ <= reduce.Bool; typ++ {
			for _, op := range operators(typ) {
				if err := incCalls(ctx, c, tree, typ, op, 1<<10); err != nil {
					return fmt.Errorf("%v of %v: %w", op, typ, err)
				}
			}
		}
		return aggregated(c, false)
	})
}

// aggregated returns an error if aggregators did not make sums for this rank, or if one rank alone had some. Calls may
// have fallen back: on a busy machine a sum may be late. In the simulator none is.
func aggregated(c *allcast.Comm, alone bool) error {
	if works, why := c.Aggregation(); works == alone {
		return fmt.Errorf("aggregators work: %v, %s", works, why)
	}
	if st := c.Stats(); (st.IncSums == 0) != alone {
		return fmt.Errorf("%d sums, %d calls fell back", st.IncSums, st.IncFallbacks)
	}
	return nil
}

// incCalls runs all forms of both reductions with about n elements, and compares every byte.
func incCalls(ctx context.Context, c *allcast.Comm, tree *inc.Tree, t reduce.Type, op reduce.Op, n int) error {
	size := c.Size()
	opts := []allcast.CallOption{allcast.WithAlgorithm("inc"), allcast.WithFactor(factor(c.Rank()))}
	dt, ro := allcast.DataType(t), allcast.ReduceOp(op)
	run := func(what string, r *allcast.Request, err error, got, want []byte) error {
		if err := calltest.Equal(calltest.Wait(ctx, r, err, "inc"), got, want); err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
		return nil
	}
	// An Allreduce, also in place. Its blocks have different sizes.
	m := n + size/2
	want := reduced(tree, t, op, blocksOf(t, m, size))
	in, out := elements(t, c.Rank(), m), make([]byte, m*t.Size())
	r, err := c.StartAllreduce(in, out, dt, ro, opts...)
	if err := run("allreduce", r, err, out, want); err != nil {
		return err
	}
	if !bytes.Equal(in, elements(t, c.Rank(), m)) {
		return errors.New("allreduce: the input has changed")
	}
	r, err = c.StartAllreduce(nil, in, dt, ro, opts...)
	if err := run("allreduce in place", r, err, in, want); err != nil {
		return err
	}
	// A Reduce-Scatter in place.
	block := n / size * t.Size()
	counts := make([]int, size)
	for i := range counts {
		counts[i] = block
	}
	want = reduced(tree, t, op, counts)[c.Rank()*block:][:block]
	in = elements(t, c.Rank(), n/size*size)
	out = in[c.Rank()*block:][:block]
	r, err = c.StartReduceScatter(in, out, dt, ro, opts...)
	if err := run("reduce-scatter in place", r, err, out, want); err != nil {
		return err
	}
	// Blocks of different sizes; the first one is empty.
	total, at := 0, 0
	for i := range counts {
		if counts[i] = n * i / size * t.Size(); i < c.Rank() {
			at += counts[i]
		}
		total += counts[i]
	}
	want = reduced(tree, t, op, counts)[at:][:counts[c.Rank()]]
	in, out = elements(t, c.Rank(), total/t.Size()), make([]byte, counts[c.Rank()])
	r, err = c.StartReduceScatterv(in, out, counts, dt, ro, opts...)
	if err := run("reduce-scatter of uneven blocks", r, err, out, want); err != nil {
		return err
	}
	if !bytes.Equal(in, elements(t, c.Rank(), total/t.Size())) {
		return errors.New("reduce-scatter: the input has changed")
	}
	return nil
}

// Empty calls, tiny ones, large ones, and one rank.
func TestIncSizes(t *testing.T) {
	for size, groups := range map[int][]string{1: {"0"}, 2: {"0-1"}, 4: {"0-3"}, 7: {"0-2", "3-6"}} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			s := newSite(t, groups...)
			tree := s.tree(size)
			s.run(t, size, s.options(), func(ctx context.Context, c *allcast.Comm) error {
				sizes := []int{0, 1, size, 10_000, 100_000}
				if size == 1 {
					sizes = sizes[1:] // a buffer of one block has no bytes to be in place in
				}
				for _, n := range sizes {
					if err := incCalls(ctx, c, tree, reduce.F32, reduce.Sum, n); err != nil {
						return fmt.Errorf("%d elements: %w", n, err)
					}
				}
				return aggregated(c, size == 1)
			})
		})
	}
}

// A communicator of all ranks in another order uses the same tree. One of some ranks has no aggregators.
func TestIncCommunicators(t *testing.T) {
	const size = 4
	s := newSite(t, "0-1", "2-3")
	s.run(t, size, s.options(), func(ctx context.Context, world *allcast.Comm) error {
		c, err := world.Split(ctx, 0, size-world.Rank())
		if err != nil {
			return err
		}
		if c.Rank() != size-1-world.Rank() {
			return fmt.Errorf("rank %d in a communicator in reverse order", c.Rank())
		}
		const n = 20_000
		for seed, done := uint64(1), false; !done; seed++ { // on a busy machine, a call may fall back
			why, err := incSum(ctx, c, seed, n)
			if err == nil {
				done, err = agreeOn(ctx, c, why == "")
			}
			if err != nil {
				return err
			}
		}
		half, err := world.Split(ctx, world.Rank()%2, 0)
		if err != nil {
			return err
		}
		err = half.Allreduce(ctx, nil, make([]byte, 8), allcast.Float32, allcast.Sum, allcast.WithAlgorithm("inc"))
		if !errors.Is(err, allcast.ErrNoAggregation) || !strings.Contains(err.Error(), "all 4 ranks") {
			return fmt.Errorf("on a communicator of half of the ranks: %w", err)
		}
		return errors.Join(c.Close(), half.Close())
	})
}

// A Reduce-Scatter by aggregators runs at the same time as a multicast Allgather.
func TestIncNextToMulticast(t *testing.T) {
	const size, n = 4, 1 << 18
	s := newSite(t, "0-3")
	s.run(t, size, s.options(), func(ctx context.Context, world *allcast.Comm) error {
		second, err := world.Dup(ctx)
		if err != nil {
			return err
		}
		for seed := range uint64(3) {
			gathered, sum := make([]byte, n*size), make([]byte, n)
			send := allcast.Bytes(calltest.Numbers(seed, world.Rank(), n/4*size))
			a, err := world.StartAllgather(calltest.Pattern(seed, world.Rank(), n), gathered, allcast.WithAlgorithm("mcast"))
			if err != nil {
				return err
			}
			b, err := second.StartReduceScatter(send, sum, allcast.Float32, allcast.Sum, allcast.WithAlgorithm("inc"))
			if err != nil {
				return err
			}
			want := allcast.Bytes(calltest.Sum(seed, size, n/4*size)[n/4*world.Rank():][:n/4])
			err = errors.Join(
				calltest.Equal(calltest.Wait(ctx, a, nil, "mcast"), gathered, calltest.Gathered(seed, size, n)),
				calltest.Equal(calltest.Wait(ctx, b, nil, "inc"), sum, want))
			if err != nil {
				return err
			}
			if chains := a.Info().Chains; chains != size {
				return fmt.Errorf("an Allgather of a job with aggregators has %d chains", chains)
			}
		}
		return errors.Join(aggregated(world, false), second.Close())
	})
}

// After the benchmark of Join all ranks choose the same algorithm.
func TestIncCalibrate(t *testing.T) {
	t.Setenv("ALLCAST_CALIBRATE", "on")
	s := newSite(t, "0-3")
	s.run(t, 4, s.options(), func(ctx context.Context, c *allcast.Comm) error {
		if works, why := c.Aggregation(); !works {
			return errors.New(why)
		}
		for _, n := range []int{4, 4000, 400_000} {
			for _, op := range []string{"reduce-scatter", "allreduce", "allgather"} {
				if err := calltest.Collectives[op](ctx, c, calltest.OnHeap, uint64(n), n, "auto"); err != nil {
					return fmt.Errorf("%s of %d bytes: %w", op, n, err)
				}
			}
		}
		return nil
	})
}

// If aggregators make no sums during the benchmark of Join, it measures point-to-point calls, and auto does not use
// inc.
func TestIncCalibrateFallback(t *testing.T) {
	t.Setenv("ALLCAST_CALIBRATE", "on")
	t.Setenv("ALLCAST_FAULT", "drop=100%")
	s := newSite(t, "0-1")
	s.run(t, 2, s.options(), func(ctx context.Context, c *allcast.Comm) error {
		if works, why := c.Aggregation(); !works {
			return errors.New(why)
		}
		if c.Stats().IncFallbacks == 0 {
			return errors.New("the benchmark did not try aggregators")
		}
		for _, n := range []int{4, 4000, 400_000} {
			r, err := c.StartReduceScatter(make([]byte, 2*n), make([]byte, n), allcast.Int32, allcast.Sum)
			if err := calltest.Wait(ctx, r, err, "auto"); err != nil {
				return err
			}
			if algo := r.Info().Algorithm; algo == "inc" {
				return fmt.Errorf("auto chose inc for %d bytes", n)
			}
		}
		return nil
	})
}

// Options.Chunk is the size of datagrams to aggregators as well, in whole elements and up to a packet. The counters say
// what was sent.
func TestIncChunk(t *testing.T) {
	const size, n = 2, 64 << 10
	s := newSite(t, "0-1")
	for asked, want := range map[int]int{1003: 1000, 7: 8} {
		o := s.options()
		o.Chunk, o.NoMulticast = asked, true
		s.run(t, size, o, func(ctx context.Context, c *allcast.Comm) error {
			send, got := allcast.Bytes(calltest.Numbers(1, c.Rank(), n/4*size)), make([]byte, n)
			sum := allcast.Bytes(calltest.Sum(1, size, n/4*size)[n/4*c.Rank():][:n/4])
			r, err := c.StartReduceScatter(send, got, allcast.Float32, allcast.Sum, allcast.WithAlgorithm("inc"))
			if err := calltest.Equal(calltest.Wait(ctx, r, err, "inc"), got, sum); err != nil {
				return err
			}
			if info := r.Info(); info.Chunk != want {
				return fmt.Errorf("a chunk of %d bytes, asked for %d", info.Chunk, asked)
			}
			chunks := (n + want - 1) / want
			st := c.Stats()
			if st.IncSums+st.IncFetchedBytes/uint64(want) < uint64(chunks) || st.IncBytes < uint64(n+chunks*inc.HeaderSize) {
				return fmt.Errorf("%d sums, %d bytes sent", st.IncSums, st.IncBytes)
			}
			return nil
		})
	}
}

// Contributions that did not leave do not count as sent.
func TestIncUnsent(t *testing.T) {
	s := newSite(t, "0-1")
	o := s.options()
	o.SiteKey = []byte("the key of another site")
	allcasttest.Run(t, 2, o, func(ctx context.Context, c *allcast.Comm) error {
		if _, err := incSum(ctx, c, 1, 1000); err != nil {
			return err
		}
		if st := c.Stats(); st.IncBytes != 0 || st.IncSums != 0 || st.IncFetchedBytes == 0 {
			return fmt.Errorf("%d bytes sent, %d sums, %d bytes fetched", st.IncBytes, st.IncSums, st.IncFetchedBytes)
		}
		return nil
	})
}

// The benchmark of Join measures reductions without multicast, too.
func TestIncCalibrateUnicast(t *testing.T) {
	t.Setenv("ALLCAST_CALIBRATE", "on")
	s := newSite(t, "0-2")
	o := s.options()
	o.NoMulticast = true
	s.run(t, 3, o, func(ctx context.Context, c *allcast.Comm) error {
		if st := c.Stats(); st.IncSums == 0 || st.McastBytes != 0 {
			return fmt.Errorf("%d sums by aggregators, %d bytes by multicast", st.IncSums, st.McastBytes)
		}
		for _, op := range []string{"reduce-scatter", "allreduce", "allgather", "broadcast"} {
			if err := calltest.Collectives[op](ctx, c, calltest.OnHeap, 1, 4000, "auto"); err != nil {
				return fmt.Errorf("%s: %w", op, err)
			}
		}
		return nil
	})
}
