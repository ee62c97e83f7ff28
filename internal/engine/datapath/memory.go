package datapath

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"unsafe"

	"github.com/allcast/allcast/internal/fabric"
)

// Errors of Free.
var (
	ErrNotAlloced = errors.New("the memory is not from Alloc")
	ErrInUse      = errors.New("an unfinished operation uses the memory")
)

// Memory hands out memory that suits the network best. It knows its blocks by address.
type Memory struct {
	placed fabric.Allocator // of memory that the kernel places chunks in; nil: there is none
	plain  fabric.Allocator // of other memory; nil: the system's

	mu     sync.Mutex
	blocks []*block // by address
}

// A block is what one Alloc returned.
type block struct {
	start, end uintptr
	users      int // calls that have not ended
	free       func() error
}

// Address is where a buffer begins.
func Address(b []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(b))) }

// Alloc returns n cleared bytes.
func (m *Memory) Alloc(n int) (b []byte, err error) {
	var free func() error
	if m.placed != nil {
		b, free, err = allocFrom(m.placed, n)
	} else {
		b, free, err = m.allocPlain(n)
	}
	if err != nil {
		return nil, err
	}
	x := &block{start: Address(b), end: Address(b) + uintptr(len(b)), free: free}
	m.mu.Lock()
	defer m.mu.Unlock()
	i, _ := m.search(x.start)
	m.blocks = slices.Insert(m.blocks, i, x)
	return b, nil
}

func allocFrom(a fabric.Allocator, n int) (b []byte, free func() error, err error) {
	if b, err = a.Alloc(n); err != nil {
		return nil, nil, err
	}
	return b, func() error { return a.Free(b) }, nil
}

// allocPlain allocates memory that no chunk is received in.
func (m *Memory) allocPlain(n int) (b []byte, free func() error, err error) {
	if m.plain != nil {
		return allocFrom(m.plain, n)
	}
	mem, err := mapMemory(n)
	if err != nil {
		return nil, nil, fmt.Errorf("memory of %d bytes: %w", n, err)
	}
	return mem[:n:n], func() error { return unmapMemory(mem) }, nil
}

// Free gives back what Alloc returned, unless a call uses it.
func (m *Memory) Free(b []byte) error {
	if cap(b) == 0 {
		return nil
	}
	x, err := m.take(Address(b[:cap(b)]))
	if err != nil {
		return err
	}
	return x.free()
}

// take removes the block that begins at an address.
func (m *Memory) take(at uintptr) (*block, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	i, found := m.search(at)
	switch {
	case !found || m.blocks[i].start != at:
		return nil, ErrNotAlloced
	case m.blocks[i].users > 0:
		return nil, ErrInUse
	}
	x := m.blocks[i]
	m.blocks = slices.Delete(m.blocks, i, i+1)
	return x, nil
}

// search finds the first block that ends behind an address, and reports whether the address is in it.
// The caller holds m.mu.
func (m *Memory) search(at uintptr) (i int, found bool) {
	i, _ = slices.BinarySearchFunc(m.blocks, at, func(x *block, at uintptr) int {
		if x.end > at {
			return 1
		}
		return -1
	})
	return i, i < len(m.blocks) && m.blocks[i].start <= at
}

// Use keeps the memory of a call's buffers, and more memory that the call uses, from being freed until Unuse.
func (m *Memory) Use(b *Buffers, more ...[]byte) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.blocks) == 0 {
		return
	}
	for _, buf := range append([][]byte{b.Send, b.Recv}, more...) {
		if len(buf) == 0 {
			continue
		}
		if i, found := m.search(Address(buf)); found {
			m.blocks[i].users++
			b.uses = append(b.uses, m.blocks[i])
		}
	}
}

// Unuse ends Use.
func (m *Memory) Unuse(b *Buffers) {
	if len(b.uses) == 0 {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, x := range b.uses {
		x.users--
	}
	b.uses = nil
}
