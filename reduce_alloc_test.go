package allcast_test

import (
	"bytes"
	"context"
	"errors"
	"runtime"
	"runtime/debug"
	"slices"
	"testing"

	"github.com/allcast/allcast"
	"github.com/allcast/allcast/allcasttest"
	"github.com/allcast/allcast/internal/calltest"
	"github.com/allcast/allcast/internal/testenv"
)

// reducing is a series of Reduce-Scatters of one size, among ranks of this process on loopback.
type reducing struct {
	size  int // number of ranks
	block int // bytes of the result of a rank
	algo  string
	warm  int // calls between the first one and the measured ones
	calls int // measured calls
}

// run makes the calls and checks every result, and at the end every input. It returns the bytes that a
// rank allocates on Go's heap in the first call, and per measured call. It calls begin and end around
// the measured calls.
func (r reducing) run(t testing.TB, begin, end func()) (first, perCall uint64) {
	t.Helper()
	total := r.size * r.block / 4
	want := calltest.Sum(1, r.size, total)
	allcasttest.Run(t, r.size, allcast.Options{}, func(ctx context.Context, c *allcast.Comm) error {
		send := allcast.Bytes(calltest.Numbers(1, c.Rank(), total))
		input := slices.Clone(send)
		recv, sum := make([]byte, r.block), allcast.Bytes(want)[c.Rank()*r.block:][:r.block]
		var err error
		barrier := func() {
			if err == nil {
				err = c.Barrier(ctx)
			}
		}
		series := func(n int) {
			for i := 0; i < n && err == nil; i++ {
				clear(recv)
				algo := allcast.WithAlgorithm(r.algo)
				s, failed := c.StartReduceScatter(send, recv, allcast.Float32, allcast.Sum, algo)
				err = calltest.Equal(calltest.Wait(ctx, s, failed, r.algo), recv, sum)
			}
			barrier()
		}
		// All ranks share a heap: one of them measures while the others wait.
		allocated := func() (n uint64) {
			if c.Rank() == 0 {
				var m runtime.MemStats
				runtime.ReadMemStats(&m)
				n = m.TotalAlloc
			}
			barrier()
			return n
		}
		barrier()
		joined := allocated()
		series(1)
		once := allocated()
		series(r.warm)
		if c.Rank() == 0 {
			begin()
		}
		warm := allocated()
		series(r.calls)
		if c.Rank() == 0 {
			end()
		}
		done := allocated()
		if c.Rank() == 0 {
			first, perCall = (once-joined)/uint64(r.size), (done-warm)/uint64(r.size*r.calls)
		}
		if err == nil && !bytes.Equal(send, input) {
			err = errors.New("the input has changed")
		}
		return err
	})
	return first, perCall
}

// A Reduce-Scatter of 16 MiB among 8 ranks allocates less than 64 KiB per call on Go's heap in the steady
// state, and far less than a copy of the input in the first call. Partial sums are outside Go's heap; the
// tests of the engine count that memory.
func TestReduceScatterAllocatesLittle(t *testing.T) {
	if testenv.Race {
		t.Skip("the race detector makes pools drop items")
	}
	// A garbage collection empties the pools, which would add allocations at a random time.
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	const size, input, limit = 8, 16 << 20, 64 << 10
	for _, algo := range calltest.Algorithms("reduce-scatter") {
		r := reducing{size: size, block: input / size, algo: algo, warm: 4, calls: 10}
		first, perCall := r.run(t, func() {}, func() {})
		t.Logf("%s: a rank allocates %d bytes in the first call, and %d per call after that", algo, first, perCall)
		if perCall >= limit {
			t.Errorf("%s: a rank allocates %d bytes per call: want less than %d", algo, perCall, limit)
		}
		if first >= input/4 {
			t.Errorf("%s: a rank allocates %d bytes in the first call, with %d bytes of input", algo, first, input)
		}
	}
}

// BenchmarkReduceScatter16M runs 8 ranks with an input of 16 MiB each, and with a result of 16 MiB each,
// which is an input of 128 MiB. B/op counts all ranks, and B/rank one of them.
func BenchmarkReduceScatter16M(b *testing.B) {
	const size = 8
	for _, c := range []struct {
		name  string
		block int
	}{{"input", 16 << 20 / size}, {"result", 16 << 20}} {
		for _, algo := range calltest.Algorithms("reduce-scatter") {
			b.Run(c.name+"/"+algo, func(b *testing.B) {
				b.SetBytes(int64(c.block) * size)
				b.ReportAllocs()
				r := reducing{size: size, block: c.block, algo: algo, warm: 4, calls: b.N}
				_, perCall := r.run(b, b.ResetTimer, b.StopTimer)
				b.ReportMetric(float64(perCall), "B/rank")
			})
		}
	}
}
