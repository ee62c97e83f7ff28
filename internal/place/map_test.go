package place

import (
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"

	"pgregory.net/rapid"
)

// state is the state of a chunk in a simple model of a Map.
type state uint8

const (
	free state = iota
	taken
	forRead
	inPlace
	inPlaceByRead
)

// A Map behaves like a list of states under any sequence of operations.
func TestMap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := uint32(rapid.IntRange(1, 200).Draw(t, "chunks"))
		m, model := New(n), make([]state, n)
		chunk := func() uint32 { return uint32(rapid.IntRange(0, int(n)-1).Draw(t, "chunk")) }
		span := func() (i, k uint32) {
			i = chunk()
			return i, uint32(rapid.IntRange(0, int(n-i)).Draw(t, "chunks"))
		}
		t.Repeat(map[string]func(*rapid.T){
			"": func(t *rapid.T) { compare(t, m, model) },
			"take": func(t *rapid.T) {
				i := chunk()
				if won := m.Take(i); won != (model[i] == free) {
					t.Fatalf("chunk %d in state %d is taken: %v", i, model[i], won)
				} else if won {
					model[i] = taken
				}
			},
			"claim": func(t *rapid.T) {
				i, k := span()
				var want, got []uint32
				busyWant := false
				for at := i; at < i+k; at++ {
					switch model[at] {
					case free:
						want, model[at] = append(want, at), forRead
					case taken:
						busyWant = true
					}
				}
				last := uint32(0)
				busy := m.Claim(i, k, func(at, n uint32) {
					if n == 0 || len(got) > 0 && at <= last {
						t.Fatalf("claims %d chunks at %d after %d", n, at, last)
					}
					for ; n > 0; n-- {
						got, last = append(got, at), at
						at++
					}
				})
				if busy != busyWant || len(got) != len(want) {
					t.Fatalf("claims %v, want %v; busy %v, want %v", got, want, busy, busyWant)
				}
				for x := range got {
					if got[x] != want[x] {
						t.Fatalf("claims %v, want %v", got, want)
					}
				}
			},
			"finish": func(t *rapid.T) {
				i, k := span()
				m.Finish(i, k)
				for at := i; at < i+k; at++ {
					if model[at] == forRead || model[at] == inPlaceByRead {
						model[at] = inPlaceByRead
					} else {
						model[at] = inPlace
					}
				}
			},
		})
	})
}

func compare(t *rapid.T, m *Map, model []state) {
	n := uint32(len(model))
	if m.Len() != n {
		t.Fatalf("%d chunks, want %d", m.Len(), n)
	}
	next := func(i uint32, is func(state) bool) uint32 {
		for i < n && !is(model[i]) {
			i++
		}
		return i
	}
	for i := range n {
		s := model[i]
		read := s == forRead || s == inPlaceByRead
		if m.Free(i) != (s == free) || m.InPlace(i) != (s >= inPlace) || m.ForRead(i) != read {
			t.Fatalf("chunk %d in state %d: free %v, in place %v, for a read %v",
				i, s, m.Free(i), m.InPlace(i), m.ForRead(i))
		}
		for name, c := range map[string]struct{ got, want uint32 }{
			"free":     {m.NextFree(i, n), next(i, func(s state) bool { return s == free })},
			"taken":    {m.NextTaken(i, n), next(i, func(s state) bool { return s != free })},
			"in place": {m.NextInPlace(i, n), next(i, func(s state) bool { return s >= inPlace })},
			"missing":  {m.NextMissing(i, n), next(i, func(s state) bool { return s < inPlace })},
		} {
			if c.got != c.want {
				t.Fatalf("the next %s chunk from %d on is %d, want %d", name, i, c.got, c.want)
			}
		}
	}
}

// Fresh finds each chunk that the kernel program has placed, once. It skips chunks that the worker has
// placed or claimed, and chunks that were in place before.
func TestFresh(t *testing.T) {
	for n := uint32(1); n < 100; n += 7 {
		r := rand.New(rand.NewPCG(uint64(n), 0))
		words := make([]Word, Words(n))
		kernel := Shared(words, n)
		kernel.Finish(0, n/4) // chunks of this rank
		m := Shared(words, n)
		want, got := map[uint32]bool{}, map[uint32]int{}
		for i := n / 4; i < n; i++ {
			switch r.IntN(4) {
			case 0:
				kernel.Finish(i, 1)
				want[i] = true
			case 1:
				m.Take(i)
				m.Finish(i, 1)
			case 2:
				m.Claim(i, 1, func(uint32, uint32) {})
			}
			if r.IntN(5) == 0 {
				m.Fresh(func(i, k uint32) { count(got, i, k) })
			}
		}
		m.Fresh(func(i, k uint32) { count(got, i, k) })
		m.Fresh(func(i, k uint32) { t.Errorf("%d chunks: %d at %d are found again", n, k, i) })
		for i := range n {
			if (got[i] == 1) != want[i] || got[i] > 1 {
				t.Errorf("%d chunks: chunk %d is found %d times, placed %v", n, i, got[i], want[i])
			}
		}
	}
}

func count(got map[uint32]int, i, n uint32) {
	for ; n > 0; n-- {
		got[i]++
		i++
	}
}

// Kernel programs, the worker and a reader race for chunks. Exactly one of them writes each chunk, and
// every observer of a chunk in place sees the written data.
func TestRace(t *testing.T) {
	const n, programs = 1 << 12, 3
	words := make([]Word, Words(n))
	worker := Shared(words, n)
	data := make([]uint32, n) // by chunk: its writer, in plain memory
	var wg sync.WaitGroup
	for p := range programs {
		wg.Go(func() {
			m := &Map{words: words, n: n} // the kernel's view, without the worker's record of seen chunks
			r := rand.New(rand.NewPCG(uint64(p), 7))
			for range 4 * n {
				i := uint32(r.IntN(n))
				if !m.Take(i) {
					continue
				}
				if r.IntN(8) == 0 { // the program cannot copy and releases the claim
					words[i/WordBits].Claimed.And(^(uint64(1) << (i % WordBits)))
					continue
				}
				data[i] = uint32(p + 1)
				words[i/WordBits].Done.Or(1 << (i % WordBits))
			}
		})
	}
	seen := 0
	wg.Go(func() {
		for at := uint32(0); at < n; at += 64 {
			var won [][2]uint32
			for worker.Claim(at, 64, func(i, k uint32) { won = append(won, [2]uint32{i, k}) }) {
				runtime.Gosched()
			}
			for _, q := range won {
				for i := q[0]; i < q[0]+q[1]; i++ {
					data[i] = 99
				}
				worker.Finish(q[0], q[1])
				seen += int(q[1])
			}
			worker.Fresh(func(i, k uint32) {
				for x := i; x < i+k; x++ {
					if data[x] == 0 || data[x] == 99 {
						t.Errorf("a program placed chunk %d, but it holds %d", x, data[x])
					}
				}
				seen += int(k)
			})
		}
	})
	wg.Wait()
	worker.Fresh(func(i, k uint32) { seen += int(k) })
	if seen != n || worker.NextMissing(0, n) != n || worker.NextFree(0, n) != n {
		t.Errorf("%d of %d chunks were seen; the first missing chunk is %d", seen, n, worker.NextMissing(0, n))
	}
}

func BenchmarkMap(b *testing.B) {
	const n = 1 << 20
	b.Run("Finish 1", func(b *testing.B) {
		m := New(n)
		b.ReportAllocs()
		for i := uint32(0); b.Loop(); i++ {
			m.Finish(i%n, 1)
		}
	})
	b.Run("Finish 7", func(b *testing.B) {
		m := New(n)
		b.ReportAllocs()
		for i := uint32(0); b.Loop(); i += 7 {
			m.Finish(i%(n-7), 7)
		}
	})
	b.Run("NextMissing in a full MiB", func(b *testing.B) {
		m := New(n)
		m.Finish(0, n)
		b.ReportAllocs()
		for b.Loop() {
			if m.NextMissing(0, n) != n {
				b.Fatal("a chunk is missing")
			}
		}
	})
}
