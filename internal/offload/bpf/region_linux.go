package bpf

import (
	"errors"
	"fmt"
	"math"
	"math/bits"
	"slices"
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

func (r *region) start() uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(r.mem))) }

// has returns the offset of buf if the region contains all of it.
func (r *region) has(buf []byte) (off uint64, ok bool) {
	at := uintptr(unsafe.Pointer(unsafe.SliceData(buf)))
	if at < r.start() || at+uintptr(len(buf)) > r.start()+uintptr(len(r.mem)) {
		return 0, false
	}
	return uint64(at - r.start()), true
}

// newRegion creates a region of at least n bytes. The kernel clears it, which takes time.
func (o *Offload) newRegion(n int) (*region, error) {
	entries := max(1, (n-1)/value+1)
	if entries > math.MaxInt32 { // entries are numbered in 32 bits
		return nil, fmt.Errorf("bpf: memory of %d bytes for received data: %w", n, unix.ENOMEM)
	}
	o.mu.Lock()
	if o.closed {
		o.mu.Unlock()
		return nil, fabric.ErrClosed
	}
	id, ok := o.ids.take(1)
	o.mu.Unlock()
	if !ok {
		return nil, fmt.Errorf("bpf: more than %d buffers at once", regions)
	}
	mem, err := o.mapRegion(id, entries)
	if err != nil {
		o.mu.Lock()
		o.ids.give(id, 1)
		o.mu.Unlock()
		return nil, fmt.Errorf("bpf: memory of %d MiB for received data: %w", entries, err)
	}
	return &region{id, mem}, nil
}

func (o *Offload) mapRegion(id uint32, entries int) ([]byte, error) {
	m, err := ebpf.NewMap(&ebpf.MapSpec{
		Name: "region", Type: ebpf.Array, KeySize: 4, ValueSize: value, MaxEntries: uint32(entries),
		Flags: unix.BPF_F_MMAPABLE | unix.BPF_F_INNER_MAP,
	})
	if err != nil {
		return nil, err
	}
	defer func() { _ = m.Close() }() // the mapping and the table keep it alive
	mem, err := unix.Mmap(m.FD(), 0, entries*value, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, err
	}
	o.using.RLock()
	defer o.using.RUnlock()
	if err := o.regions.Put(id, m); err != nil {
		_ = unix.Munmap(mem)
		return nil, err
	}
	return mem, nil
}

// drop returns a region to the kernel. When drop returns, no program writes to it any more.
func (o *Offload) drop(r *region) {
	o.using.RLock()
	err := o.regions.Delete(r.id) // fails after Close, when no program runs any more
	o.using.RUnlock()
	if err == nil {
		o.mu.Lock()
		o.ids.give(r.id, 1)
		o.mu.Unlock()
	}
	_ = unix.Munmap(r.mem)
}

// Alloc implements fabric.Allocator.
func (o *Offload) Alloc(n int) ([]byte, error) {
	r, err := o.newRegion(n)
	if err != nil {
		return nil, err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.given = append(o.given, r)
	return r.mem[:n:n], nil
}

// Free implements fabric.Allocator.
func (o *Offload) Free(buf []byte) error {
	o.mu.Lock()
	i := slices.IndexFunc(o.given, func(r *region) bool {
		return r.start() == uintptr(unsafe.Pointer(unsafe.SliceData(buf[:cap(buf)])))
	})
	if i < 0 {
		o.mu.Unlock()
		return errors.New("bpf: free: the memory is not from Alloc")
	}
	r := o.given[i]
	o.given = slices.Delete(o.given, i, i+1)
	o.mu.Unlock()
	o.drop(r)
	return nil
}

// area implements fabric.Area.
type area struct {
	o     *Offload
	r     *region
	off   uint64
	stage []byte
}

// idle is the maximum number of stages kept for reuse.
const idle = 4

// Area implements fabric.Placer.
func (o *Offload) Area(buf []byte) fabric.Area {
	if len(buf) == 0 {
		return nil
	}
	o.mu.Lock()
	for _, r := range o.given {
		if off, ok := r.has(buf); ok {
			o.mu.Unlock()
			return &area{o: o, r: r, off: off}
		}
	}
	var best *region
	for _, r := range o.stages {
		if len(r.mem) >= len(buf) && (best == nil || len(r.mem) < len(best.mem)) {
			best = r
		}
	}
	if best != nil {
		o.stages = slices.DeleteFunc(o.stages, func(r *region) bool { return r == best })
	}
	o.mu.Unlock()
	if best == nil {
		var err error
		// Powers of two, so that buffers of similar sizes can reuse one.
		if best, err = o.newRegion(max(value, 1<<bits.Len(uint(len(buf)-1)))); err != nil {
			o.complain(err)
			return nil
		}
	}
	return &area{o: o, r: best, stage: best.mem[:len(buf)]}
}

// Stage implements fabric.Area.
func (a *area) Stage() []byte { return a.stage }

// Release implements fabric.Area.
func (a *area) Release() {
	if a.stage == nil {
		return
	}
	o := a.o
	a.stage = nil
	var old *region
	o.mu.Lock()
	switch {
	case o.closed:
		old = a.r
	default:
		o.stages = append(o.stages, a.r)
		if len(o.stages) > idle {
			old = o.stages[0]
			o.stages = slices.Delete(o.stages, 0, 1)
		}
	}
	o.mu.Unlock()
	if old != nil {
		// Drop waits for programs that may still access the region, which takes milliseconds.
		go o.drop(old)
	}
}
