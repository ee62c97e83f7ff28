package bpf

import (
	"errors"
	"math"
	"os"
	"slices"
	"sync"
	"testing"

	"github.com/cilium/ebpf"

	"github.com/allcast/allcast/internal/fabric"
)

func TestAllocFree(t *testing.T) {
	o := load(t, Config{Chunk: 100})
	for _, n := range []int{0, 1, 4096, value - 1, value, value + 1, 5*value + 13} {
		b, err := o.Alloc(n)
		must(t, err)
		if len(b) != n || cap(b) != n {
			t.Errorf("%d bytes: %d of %d", n, len(b), cap(b))
		}
		for i := range b {
			if b[i] != 0 {
				t.Fatalf("%d bytes: not cleared", n)
			}
			b[i] = byte(i)
		}
		if n > 1 && o.Free(b[1:]) == nil {
			t.Error("a part was freed")
		}
		if o.Free(b[:0]) != nil || n > 0 && o.Free(b) == nil {
			t.Error("not freed, or twice")
		}
	}
	if o.Free(make([]byte, 10)) == nil || o.Free(nil) == nil {
		t.Error("other memory was freed")
	}
	for _, n := range []int{math.MaxInt, math.MaxInt - value, 1 << 60, 1<<52 + 1, 1 << 50} {
		if b, err := o.Alloc(n); err == nil {
			t.Errorf("%d bytes: got %d", n, len(b))
		}
	}
	if len(o.ids) != 1 || o.ids[0].n != regions {
		t.Errorf("numbers of regions that are free: %v", o.ids)
	}
}

// There are so many regions, and Alloc says so.
func TestAllocMany(t *testing.T) {
	o := load(t, Config{Chunk: 100})
	// Memory is not what this is about.
	o.ids = spans{{0, 3}}
	var all [][]byte
	for range 3 {
		b, err := o.Alloc(1)
		must(t, err)
		all = append(all, b)
	}
	if _, err := o.Alloc(1); err == nil {
		t.Error("more than there are")
	}
	said := 0
	o.cfg.Complain = func(error) { said++ }
	for range 2 {
		if a := o.Area(make([]byte, 10)); a != nil {
			t.Error("an area of nothing")
		}
	}
	if said != 1 {
		t.Errorf("complained %d times", said)
	}
	must(t, o.Free(all[1]))
	if _, err := o.Alloc(1); err != nil {
		t.Error(err)
	}
}

// Memory stays the caller's beyond Close, and Free takes it all the same.
func TestMemoryAfterClose(t *testing.T) {
	o := load(t, Config{Chunk: 100})
	b, err := o.Alloc(2*value + 5)
	must(t, err)
	stage := o.Area(make([]byte, 10))
	must(t, o.Close())
	must(t, o.Close())
	for i := range b {
		b[i] = 1
	}
	if o.Free(b) != nil || o.Free(b) == nil {
		t.Error("not freed, or twice")
	}
	stage.Release()
	stage.Release()
	if _, err := o.Alloc(1); !errors.Is(err, fabric.ErrClosed) {
		t.Errorf("Alloc after Close: %v", err)
	}
	if o.Area(make([]byte, 1)) != nil {
		t.Error("an area after Close")
	}
	if o.Lost() != 0 {
		t.Error("lost")
	}
}

// Whoever allocates while it is closed gets memory or an error.
func TestCloseMeanwhile(t *testing.T) {
	for range 20 {
		o := load(t, Config{Chunk: 100})
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() {
				for range 20 {
					b, err := o.Alloc(1)
					if err != nil {
						return
					}
					b[0] = 1
					_ = o.Free(b)
				}
			})
			wg.Go(func() {
				for range 20 {
					a := o.Area(make([]byte, 10))
					if a == nil {
						return
					}
					a.Stage()[9] = 1
					a.Release()
				}
			})
		}
		must(t, o.Close())
		wg.Wait()
	}
}

// Stages are used again: the smallest that is large enough. Not all are kept.
func TestStages(t *testing.T) {
	o := load(t, Config{Chunk: 100})
	of := func(n int) *area {
		t.Helper()
		a := o.Area(make([]byte, n))
		if a == nil || len(a.Stage()) != n {
			t.Fatalf("no stage of %d bytes", n)
		}
		return a.(*area)
	}
	if o.Area(nil) != nil {
		t.Error("a stage of nothing")
	}
	small, large := of(1), of(3*value)
	if len(small.r.mem) != value || len(large.r.mem) != 4*value {
		t.Errorf("stages of %d and %d bytes", len(small.r.mem), len(large.r.mem))
	}
	r1, r2 := small.r, large.r
	small.Release()
	large.Release()
	small.Release() // twice
	if a := of(value); a.r != r1 {
		t.Error("not the one that fits")
	}
	if a := of(value); a.r != r2 {
		t.Error("not the one that is left")
	}
	var all []*area
	for range idle + 3 {
		all = append(all, of(1))
	}
	for _, a := range all {
		a.Release()
	}
	o.mu.Lock()
	n := len(o.stages)
	o.mu.Unlock()
	if n != idle {
		t.Errorf("%d stages are kept", n)
	}
	mem, err := o.Alloc(100)
	must(t, err)
	if a := o.Area(mem[10:20]); a.Stage() != nil || a.(*area).off != 10 {
		t.Error("memory of Alloc has a stage")
	}
	must(t, o.Free(mem))
	until(t, "what is not kept", func() bool {
		o.mu.Lock()
		defer o.mu.Unlock()
		taken := uint32(regions)
		for _, f := range o.ids {
			taken -= f.n
		}
		return taken == uint32(idle+2)
	})
}

// possessions are what the kernel has of an Offload.
type possessions struct {
	maps     []ebpf.MapID
	programs []ebpf.ProgramID
}

func (o *Offload) possessions(t *testing.T, regions ...uint32) (own possessions) {
	t.Helper()
	for name, m := range o.maps {
		info, err := m.Info()
		must(t, err)
		id, ok := info.ID()
		if !ok {
			t.Fatalf("map %s has no number", name)
		}
		own.maps = append(own.maps, id)
	}
	for _, r := range regions {
		var id ebpf.MapID
		must(t, o.regions.Lookup(r, &id))
		own.maps = append(own.maps, id)
	}
	for id, err := ebpf.ProgramGetNextID(0); err == nil; id, err = ebpf.ProgramGetNextID(id) {
		p, err := ebpf.NewProgramFromID(id)
		if err != nil {
			continue // gone
		}
		if info, err := p.Info(); err == nil {
			used, _ := info.MapIDs()
			if slices.ContainsFunc(used, func(id ebpf.MapID) bool { return slices.Contains(own.maps, id) }) {
				own.programs = append(own.programs, id)
			}
		}
		_ = p.Close()
	}
	return own
}

// left is how many are still there.
func (own possessions) left() (n int) {
	for _, id := range own.maps {
		if m, err := ebpf.NewMapFromID(id); err == nil {
			_ = m.Close()
			n++
		}
	}
	for _, id := range own.programs {
		if p, err := ebpf.NewProgramFromID(id); err == nil {
			_ = p.Close()
			n++
		}
	}
	return n
}

func descriptors(t *testing.T) int {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	must(t, err)
	return len(list)
}

// After Close nothing is left: no descriptor, map or program, and so no link.
func TestLeavesNothing(t *testing.T) {
	for hook, programs := range map[Hook]int{SockFilter: 2, TCX: 3} {
		t.Run(string(hook), func(t *testing.T) {
			_ = load(t, Config{Chunk: 100}).Close() // what the library keeps for itself
			files := descriptors(t)
			var own possessions
			t.Run("life", func(t *testing.T) {
				w := newLoopback(t, Config{Chunk: 100, Hook: hook}, 2, false)
				mem, err := w.Alloc(1000)
				must(t, err)
				l := specOf(0, 100, 1000)
				a, p := w.open(t, mem, l)
				w.send(t, 0, chunksOf(l, randomBytes(1000))...)
				runs(t, p, fabric.Run{PSN: 0, N: 10})
				p.Close()
				a.Release()
				stage := w.Area(make([]byte, 10)).(*area)
				own = w.possessions(t, w.given[0].id, stage.r.id)
				stage.Release()
				must(t, w.Free(mem))
			})
			if len(own.maps) < 8 || len(own.programs) != programs {
				t.Errorf("%d maps, %d programs: what is this test for?", len(own.maps), len(own.programs))
			}
			until(t, "no descriptors", func() bool { return descriptors(t) <= files })
			until(t, "no maps and programs", func() bool { return own.left() == 0 }) // the kernel frees them some time later
		})
	}
}
