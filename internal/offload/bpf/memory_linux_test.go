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
			t.Errorf("Alloc(%d): length %d, capacity %d", n, len(b), cap(b))
		}
		for i := range b {
			if b[i] != 0 {
				t.Fatalf("Alloc(%d): memory is not zero", n)
			}
			b[i] = byte(i)
		}
		if n > 1 && o.Free(b[1:]) == nil {
			t.Error("Free accepted a part of a buffer")
		}
		if o.Free(b[:0]) != nil || n > 0 && o.Free(b) == nil {
			t.Error("Free failed, or accepted the buffer twice")
		}
	}
	if o.Free(make([]byte, 10)) == nil || o.Free(nil) == nil {
		t.Error("Free accepted foreign memory")
	}
	for _, n := range []int{math.MaxInt, math.MaxInt - value, 1 << 60, 1<<52 + 1, 1 << 50} {
		if b, err := o.Alloc(n); err == nil {
			t.Errorf("Alloc(%d) succeeded with %d bytes", n, len(b))
		}
	}
	if len(o.ids) != 1 || o.ids[0].n != regions {
		t.Errorf("free region ids: %v, want all", o.ids)
	}
}

// Alloc fails when all region ids are in use, and Area complains once.
func TestAllocMany(t *testing.T) {
	o := load(t, Config{Chunk: 100})
	// Few ids, so that the test needs little memory.
	o.ids = spans{{0, 3}}
	var all [][]byte
	for range 3 {
		b, err := o.Alloc(1)
		must(t, err)
		all = append(all, b)
	}
	if _, err := o.Alloc(1); err == nil {
		t.Error("Alloc succeeded without a free region id")
	}
	said := 0
	o.cfg.Complain = func(error) { said++ }
	for range 2 {
		if a := o.Area(make([]byte, 10)); a != nil {
			t.Error("Area succeeded without a free region id")
		}
	}
	if said != 1 {
		t.Errorf("complained %d times, want once", said)
	}
	must(t, o.Free(all[1]))
	if _, err := o.Alloc(1); err != nil {
		t.Error(err)
	}
}

// Memory from Alloc stays valid after Close, and Free still releases it.
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
		t.Error("Free failed, or accepted the buffer twice")
	}
	stage.Release()
	stage.Release()
	if _, err := o.Alloc(1); !errors.Is(err, fabric.ErrClosed) {
		t.Errorf("Alloc after Close: %v", err)
	}
	if o.Area(make([]byte, 1)) != nil {
		t.Error("Area succeeded after Close")
	}
	if o.Lost() != 0 {
		t.Error("Lost is not 0 after Close")
	}
}

// A concurrent Close makes Alloc and Area fail, or lets them return usable memory.
func TestCloseConcurrently(t *testing.T) {
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

// Area reuses the smallest free stage that is large enough. Only a few free stages are kept.
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
		t.Error("Area accepted an empty buffer")
	}
	small, large := of(1), of(3*value)
	if len(small.r.mem) != value || len(large.r.mem) != 4*value {
		t.Errorf("stages of %d and %d bytes", len(small.r.mem), len(large.r.mem))
	}
	r1, r2 := small.r, large.r
	small.Release()
	large.Release()
	small.Release() // a second Release has no effect
	if a := of(value); a.r != r1 {
		t.Error("Area did not reuse the smallest stage that fits")
	}
	if a := of(value); a.r != r2 {
		t.Error("Area did not reuse the remaining stage")
	}
	var all []*area
	for range idle + 3 {
		all = append(all, of(1))
	}
	for _, a := range all {
		a.Release()
	}
	o.memory.mu.Lock()
	n := len(o.stages)
	o.memory.mu.Unlock()
	if n != idle {
		t.Errorf("%d free stages are kept, want %d", n, idle)
	}
	mem, err := o.Alloc(100)
	must(t, err)
	if a := o.Area(mem[10:20]); a.Stage() != nil || a.(*area).off != 10 {
		t.Error("memory from Alloc has a stage, or the wrong offset")
	}
	must(t, o.Free(mem))
	until(t, "excess stages to be released", func() bool {
		o.memory.mu.Lock()
		defer o.memory.mu.Unlock()
		taken := uint32(regions)
		for _, f := range o.ids {
			taken -= f.n
		}
		return taken == uint32(idle+2)
	})
}

// possessions are the kernel objects of an Offload.
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
			t.Fatalf("map %s has no id", name)
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
			continue // removed meanwhile
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

// left returns the number of objects that still exist.
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

// Close leaves no descriptor, map or program behind, and therefore no link.
func TestLeavesNothing(t *testing.T) {
	for hook, programs := range map[Hook]int{SockFilter: 2, TCX: 3} {
		t.Run(string(hook), func(t *testing.T) {
			_ = load(t, Config{Chunk: 100}).Close() // opens the descriptors that the eBPF library keeps
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
				t.Errorf("found %d maps and %d programs: the test does not see all of them", len(own.maps), len(own.programs))
			}
			until(t, "descriptors to be closed", func() bool { return descriptors(t) <= files })
			// The kernel frees maps and programs asynchronously.
			until(t, "maps and programs to be freed", func() bool { return own.left() == 0 })
		})
	}
}
