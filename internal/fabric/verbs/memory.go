//go:build verbs

package verbs

// #include "shim.h"
import "C"

import (
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/allcast/allcast/internal/fabric"
)

// memory is the memory that a device may read and write. Registering memory pins its pages, which takes
// long. Memory of alloc is registered once, when it is allocated. Other memory is registered only while
// an operation uses it: if Go returned the pages of a freed object to the system, the device would
// silently keep using the old pages. Registered memory is pinned for Go as well, so it cannot be freed.
//
// A goroutine deregisters an unused region, since that would block the engine's control loop.
type memory struct {
	dev   *Device
	pin   func(b []byte, remote bool) (*region, error) // register; tests replace it
	dereg func(r *region)                              // ibv_dereg_mr; tests replace it

	mu      sync.Mutex
	regions []*region          // regions that find returns
	blocks  map[uint64]*region // of Alloc, by address
	closed  bool
	going   sync.WaitGroup // deregistrations and calls of Alloc under way; grows under mu, and never after closed

	registered   atomic.Uint64 // calls of ibv_reg_mr for users' memory
	deregistered atomic.Uint64 // calls of ibv_dereg_mr for users' memory
	reused       atomic.Uint64 // registrations saved by a region of Alloc or of another operation
}

// A region is registered memory.
type region struct {
	addr, size uint64
	lkey, rkey uint32
	mr         *C.struct_ibv_mr // nil after deregistration
	pin        runtime.Pinner
	block      []byte // memory of alloc; otherwise nil
	holds      [2]int // by kind; the region is deregistered when there is none
}

// A hold keeps a region registered until release.
type hold int

const (
	holdOwner hold = iota // find returns the region only while there is one of this kind
	holdUser              // of a request under way, or of peers that may still read
)

func (r *region) covers(addr, size uint64) bool {
	return addr >= r.addr && size <= r.size && addr-r.addr <= r.size-size
}

// acquire registers b, or finds a region that covers it, with a holdOwner. It may block for long.
func (m *memory) acquire(b []byte) (*region, error) {
	if r := m.find(b, holdOwner); r != nil {
		return r, nil
	}
	r, err := m.pin(b, true)
	if err != nil {
		return nil, err
	}
	m.registered.Add(1)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.add(r)
	return r, nil
}

// add makes a region known to find, with a holdOwner. m.mu is held.
func (m *memory) add(r *region) {
	r.holds[holdOwner]++
	m.regions = append(m.regions, r)
}

// find finds a region that covers b, and adds a hold to it; nil: there is none.
func (m *memory) find(b []byte, as hold) *region {
	addr, size := address(b), uint64(len(b))
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, r := range slices.Backward(m.regions) {
		if r.covers(addr, size) {
			r.holds[as]++
			if as == holdOwner {
				m.reused.Add(1)
			}
			return r
		}
	}
	return nil
}

// use adds a holdUser to a region.
func (m *memory) use(r *region) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r.holds[holdUser]++
}

// release removes a hold.
func (m *memory) release(r *region, as hold) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.releaseLocked(r, as)
}

// releaseLocked is release for a caller that holds m.mu.
func (m *memory) releaseLocked(r *region, as hold) {
	r.holds[as]--
	if r.holds[holdOwner] == 0 && as == holdOwner {
		m.regions = slices.DeleteFunc(m.regions, func(o *region) bool { return o == r })
	}
	switch {
	case r.holds != [2]int{}:
	case m.closed: // close has taken the region from the device, or still needs m.mu before it returns
		m.unregister(r)
	default:
		m.going.Go(func() { m.unregister(r) })
	}
}

// register registers memory. Read-only memory is registered for sending.
func (m *memory) register(b []byte, remote bool) (*region, error) {
	r := &region{addr: address(b), size: uint64(len(b))}
	r.pin.Pin(unsafe.SliceData(b))
	var err error
	for _, write := range []C.int{1, 0} {
		if r.mr, err = C.ac_reg(m.dev.pd, C.uint64_t(r.addr), C.uint64_t(r.size), write, cbool(remote)); r.mr != nil {
			r.lkey, r.rkey = uint32(r.mr.lkey), uint32(r.mr.rkey)
			return r, nil
		}
	}
	r.pin.Unpin()
	return nil, fmt.Errorf("%w; \"ulimit -l\" may be too low", m.dev.errno(fmt.Sprintf("register %d bytes", len(b)), err))
}

// unregister deregisters a region, and frees its memory; nil: there is none.
func (m *memory) unregister(r *region) {
	if r == nil {
		return
	}
	m.unpin(r)
	if r.block != nil {
		_ = unix.Munmap(r.block) // cannot fail: alloc mapped it
		r.block = nil
	}
}

// unpin deregisters a region, unless that was done before.
func (m *memory) unpin(r *region) {
	if r.mr == nil {
		return
	}
	m.dereg(r)
	r.mr = nil
	r.pin.Unpin()
	if r.block == nil {
		m.deregistered.Add(1)
	}
}

// alloc allocates memory for users outside of Go's heap that stays registered.
func (m *memory) alloc(n int, remote bool) ([]byte, *region, error) {
	return m.allocBy(m.pin, n, remote)
}

// allocBy is alloc with a function that registers the memory.
func (m *memory) allocBy(pin func([]byte, bool) (*region, error), n int, remote bool) ([]byte, *region, error) {
	b, err := unix.Mmap(-1, 0, max(n, 1), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return nil, nil, fmt.Errorf("allocate %d bytes: %w", n, err)
	}
	r, err := pin(b, remote)
	if err != nil {
		_ = unix.Munmap(b)
		return nil, nil, err
	}
	r.block = b
	return b[:n:n], r, nil
}

// Alloc allocates memory for users, registered until Free or until the device is closed. During close
// and afterwards, it returns fabric.ErrClosed.
func (m *memory) Alloc(n int) ([]byte, error) {
	m.mu.Lock()
	if m.closed {
		m.mu.Unlock()
		return nil, fabric.ErrClosed
	}
	m.going.Add(1) // close waits
	m.mu.Unlock()
	defer m.going.Done()
	b, r, err := m.alloc(n, true)
	if err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		m.unregister(r)
		return nil, fabric.ErrClosed
	}
	m.add(r)
	m.blocks[r.addr] = r
	return b, nil
}

// Free releases memory of Alloc, even after the device was closed. Operations that still use the memory
// keep it until they end. One critical section removes the block from m.blocks and releases it: in
// between, close would miss the block and leave it registered.
func (m *memory) Free(b []byte) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.blocks[address(b)]
	if r == nil {
		return fmt.Errorf("free: %d bytes that Alloc did not make", len(b))
	}
	delete(m.blocks, r.addr)
	m.releaseLocked(r, holdOwner)
	return nil
}

// close deregisters all memory. Users may access memory of Alloc until Free. When close returns, the
// device may be closed.
func (m *memory) close() {
	m.mu.Lock()
	m.closed = true
	m.mu.Unlock()
	m.going.Wait()
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, r := range m.blocks {
		m.unpin(r)
	}
}
