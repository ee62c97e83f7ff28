package bpf

import (
	"fmt"
	"sync/atomic"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// ring is the ring buffer through which programs wake the process. Its contents do not matter.
type ring struct {
	consumer, producer []byte
}

func openRing(m *ebpf.Map) (r ring, err error) {
	page := unix.Getpagesize()
	if r.consumer, err = unix.Mmap(m.FD(), 0, page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED); err != nil {
		return r, fmt.Errorf("bpf: map the events: %w", err)
	}
	if r.producer, err = unix.Mmap(m.FD(), int64(page), page, unix.PROT_READ, unix.MAP_SHARED); err != nil {
		return r, fmt.Errorf("bpf: map the events: %w", err)
	}
	return r, nil
}

// empty discards all events.
func (r *ring) empty() {
	position := func(page []byte) *atomic.Uint64 { return (*atomic.Uint64)(unsafe.Pointer(unsafe.SliceData(page))) }
	position(r.consumer).Store(position(r.producer).Load())
}

func (r *ring) close() {
	for _, m := range [][]byte{r.consumer, r.producer} {
		if m != nil {
			_ = unix.Munmap(m)
		}
	}
}
