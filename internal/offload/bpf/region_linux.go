package bpf

import (
	"errors"
	"fmt"
	"math"
	"math/bits"
	"slices"
	"sync"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/allcast/allcast/internal/fabric"
)

// region is memory to which programs write.
type region struct {
	id  uint32
	mem []byte
}

// has returns the offset of buf if the region contains all of it.
func (r *region) has(buf []byte) (off uint64, ok bool) {
	start, at := uintptr(unsafe.Pointer(unsafe.SliceData(r.mem))), uintptr(unsafe.Pointer(unsafe.SliceData(buf)))
	return uint64(at - start), at >= start && at+uintptr(len(buf)) <= start+uintptr(len(r.mem))
}

// memory is the regions of an Offload.
type memory struct {
	regions *ebpf.Map    // region by id
	using   sync.RWMutex // held for reading while regions is in use, so that Close waits

	mu       sync.Mutex
	ended    bool
	ids      spans // free ones
	given    []*region
	stages   []*region // idle ones
	complain sync.Once // guards Complain
}

// freeStages ends the use of stages: it frees the idle ones, and newRegion fails. Memory from Alloc stays valid.
func (m *memory) freeStages() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.ended = true
	for _, r := range m.stages {
		_ = unix.Munmap(r.mem)
	}
	m.stages = nil
}

// newRegion creates a region of at least n bytes. The kernel clears it, which takes time.
func (m *memory) newRegion(n int) (*region, error) {
	entries := max(1, (n-1)/value+1)
	if entries > math.MaxInt32 { // entries are numbered in 32 bits
		return nil, fmt.Errorf("bpf: memory of %d bytes for received data: %w", n, unix.ENOMEM)
	}
	m.mu.Lock()
	if m.ended {
		m.mu.Unlock()
		return nil, fabric.ErrClosed
	}
	id, ok := m.ids.take(1)
	m.mu.Unlock()
	if !ok {
		return nil, fmt.Errorf("bpf: more than %d buffers at once", regions)
	}
	mem, err := m.mapRegion(id, entries)
	if err != nil {
		m.giveID(id)
		return nil, fmt.Errorf("bpf: memory of %d MiB for received data: %w", entries, err)
	}
	return &region{id, mem}, nil
}

func (m *memory) giveID(id uint32) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.ids.give(id, 1)
}

func (m *memory) mapRegion(id uint32, entries int) ([]byte, error) {
	inner, err := ebpf.NewMap(&ebpf.MapSpec{
		Name: "region", Type: ebpf.Array, KeySize: 4, ValueSize: value, MaxEntries: uint32(entries),
		Flags: unix.BPF_F_MMAPABLE | unix.BPF_F_INNER_MAP,
	})
	if err != nil {
		return nil, err
	}
	defer func() { _ = inner.Close() }() // the mapping and the table keep it alive
	mem, err := unix.Mmap(inner.FD(), 0, entries*value, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, err
	}
	m.using.RLock()
	defer m.using.RUnlock()
	if err := m.regions.Put(id, inner); err != nil {
		_ = unix.Munmap(mem)
		return nil, err
	}
	return mem, nil
}

// drop returns a region to the kernel. When drop returns, no program writes to it any more.
func (m *memory) drop(r *region) {
	m.using.RLock()
	err := m.regions.Delete(r.id) // fails after Close, when no program runs any more
	m.using.RUnlock()
	if err == nil {
		m.giveID(r.id)
	}
	_ = unix.Munmap(r.mem)
}

// Alloc implements fabric.Allocator.
func (m *memory) Alloc(n int) ([]byte, error) {
	r, err := m.newRegion(n)
	if err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.given = append(m.given, r)
	return r.mem[:n:n], nil
}

// Free implements fabric.Allocator.
func (m *memory) Free(buf []byte) error {
	m.mu.Lock()
	i := slices.IndexFunc(m.given, func(r *region) bool {
		return unsafe.SliceData(r.mem) == unsafe.SliceData(buf[:cap(buf)])
	})
	if i < 0 {
		m.mu.Unlock()
		return errors.New("bpf: free: the memory is not from Alloc")
	}
	r := m.given[i]
	m.given = slices.Delete(m.given, i, i+1)
	m.mu.Unlock()
	m.drop(r)
	return nil
}

// find returns the region that contains buf and its offset there, or else an idle stage that is large
// enough, which it takes.
func (m *memory) find(buf []byte) (given *region, off uint64, stage *region) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, r := range m.given {
		if off, ok := r.has(buf); ok {
			return r, off, nil
		}
	}
	for _, r := range m.stages {
		if len(r.mem) >= len(buf) && (stage == nil || len(r.mem) < len(stage.mem)) {
			stage = r
		}
	}
	m.stages = slices.DeleteFunc(m.stages, func(r *region) bool { return r == stage })
	return nil, 0, stage
}

// idle is the maximum number of stages kept for reuse.
const idle = 4

// reuse keeps a stage for reuse. It returns the region to drop instead; nil: none.
func (m *memory) reuse(stage *region) (old *region) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.ended {
		return stage
	}
	if m.stages = append(m.stages, stage); len(m.stages) > idle {
		old = m.stages[0]
		m.stages = slices.Delete(m.stages, 0, 1)
	}
	return old
}

// area implements fabric.Area.
type area struct {
	o     *Offload
	r     *region
	off   uint64
	stage []byte
}

// Area implements fabric.Placer.
func (o *Offload) Area(buf []byte) fabric.Area {
	if len(buf) == 0 {
		return nil
	}
	given, off, stage := o.find(buf)
	if given != nil {
		return &area{o: o, r: given, off: off}
	}
	if stage == nil {
		var err error
		// Powers of two, so that buffers of similar sizes can reuse one.
		if stage, err = o.newRegion(max(value, 1<<bits.Len(uint(len(buf)-1)))); err != nil {
			if o.cfg.Complain != nil {
				o.complain.Do(func() { o.cfg.Complain(err) })
			}
			return nil
		}
	}
	return &area{o: o, r: stage, stage: stage.mem[:len(buf)]}
}

// Stage implements fabric.Area.
func (a *area) Stage() []byte { return a.stage }

// Release implements fabric.Area.
func (a *area) Release() {
	if a.stage == nil {
		return
	}
	a.stage = nil
	if old := a.o.reuse(a.r); old != nil {
		// drop waits for programs that may still access the region, which takes milliseconds.
		go a.o.drop(old)
	}
}
