//go:build verbs

package verbs

// #include "shim.h"
import "C"

import (
	"encoding/binary"
	"fmt"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/allcast/allcast/internal/fabric"
	"github.com/allcast/allcast/internal/wire"
)

// receiver receives the datagrams of one subgroup from its staging ring.
type receiver struct {
	dev  *Device
	srq  *C.struct_ibv_srq
	cq   *completionQueue
	head int
	ring ring
	reg  *region
	mem  []byte

	mend    func()      // of the sender: resets failed queue pairs
	mending atomic.Bool // queue pairs may have failed

	mu    sync.Mutex // held by Receive
	again []uint32   // slots to post again

	fatal                               atomic.Pointer[error] // reason why nothing can be received
	busy                                atomic.Bool
	datagrams, malformed, calls, echoes atomic.Uint64
}

var _ fabric.Receiver = (*receiver)(nil)

func (r *receiver) open(slots int) (err error) {
	d := r.dev
	if r.cq, err = newCompletionQueue(d, slots); err != nil {
		return err
	}
	r.cq.own(r.lose)
	if r.srq, err = C.ac_srq(d.pd, C.int(slots)); r.srq == nil {
		return d.errno(fmt.Sprintf("create a shared receive queue of %d", slots), err)
	}
	d.events.own(unsafe.Pointer(r.srq), r.lose)
	stride := (grhSize + r.head + d.MTU() + 63) &^ 63
	if r.mem, r.reg, err = d.mem.alloc(slots*stride, false); err != nil {
		return err
	}
	r.ring = ring{base: cu64(address(r.mem)), stride: cu32(stride), key: cu32(r.reg.lkey)}
	if rc := postRecv(nil, r.srq, &r.ring, numbers(slots)); rc != 0 {
		return d.failed(fmt.Sprintf("post %d receives", slots), rc)
	}
	r.again = make([]uint32, 0, Batch)
	return nil
}

// numbers are 0 to n-1: the numbers of n slots.
func numbers(n int) []uint32 {
	all := make([]uint32, n)
	for i := range all {
		all[i] = uint32(i)
	}
	return all
}

// Attach implements fabric.Receiver. There is no poller for completion queues.
func (r *receiver) Attach(fabric.Poller, fabric.Sink, func(error)) bool { return false }

// Receive implements fabric.Receiver. A batch costs one call into C: it posts the last batch's slots
// again and takes the next completions.
func (r *receiver) Receive(s fabric.Sink) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	for got := false; ; {
		if err := r.fatal.Load(); err != nil {
			return *err
		}
		n, posted := r.take()
		if posted != 0 || n < 0 {
			return r.dev.failed("receive", min(n, posted))
		}
		r.busy.Store(n > 0)
		if n == 0 && r.mending.Load() {
			r.mending.Store(false)
			r.mend()
		}
		if n > 0 {
			got = true
			r.calls.Add(1)
			for i := range n {
				r.hand(s, &r.cq.done[i])
			}
			if !r.cq.woken.Load() {
				continue
			}
		}
		if got || r.cq.woken.Load() {
			r.cq.seen()
			s.Idle()
			return nil
		}
		if err := r.cq.wait(); err != nil {
			return err
		}
	}
}

// take posts slots again and polls for completions, in one call.
func (r *receiver) take() (n, posted int) {
	var rc C.int
	n = int(C.ac_receive(r.srq, &r.ring, (*C.uint32_t)(unsafe.SliceData(r.again)), C.int(len(r.again)), r.cq.cq,
		&r.cq.done[0], Batch, C.int(spin()), 1, &rc))
	r.again = r.again[:0]
	return n, int(rc)
}

// hand hands one datagram to the sink.
func (r *receiver) hand(s fabric.Sink, d *completion) {
	i := int(d.id)
	r.again = append(r.again, uint32(i))
	if Status(d.status) != StatusSuccess {
		r.malformed.Add(1) // too long for a slot, the only way a receive can fail
		return
	}
	m := r.mem[i*int(r.ring.stride):][:d.len]
	if len(m) < grhSize+r.head || d.flags&C.IBV_WC_WITH_IMM == 0 {
		r.malformed.Add(1)
		return
	}
	if d.src_qp == d.qp && r.ours(m) { // each queue pair is alone in its group here
		r.echoes.Add(1)
		return
	}
	r.datagrams.Add(1)
	p := m[grhSize:]
	h := wire.Header{Token: binary.LittleEndian.Uint64(p), Comm: binary.LittleEndian.Uint32(p[8:]), Imm: uint32(d.imm)}
	if r.head > headSize {
		h.Sum = binary.LittleEndian.Uint32(p[headSize:])
	}
	s.Chunk(h, p[r.head:])
}

// ours reports whether a datagram came from this port. The number of the queue pair is not enough,
// since devices number theirs independently. With RoCE v2 over IPv4 the last 20 of the 40 bytes are
// the IP header.
func (r *receiver) ours(m []byte) bool {
	gid := goGID(r.dev.gid.raw).As16()
	if r.dev.attr.link == linkEthernet {
		return [4]byte(m[32:36]) == [4]byte(gid[12:])
	}
	return [16]byte(m[8:24]) == gid
}

// mendSoon makes the receive worker bring queue pairs back.
func (r *receiver) mendSoon() {
	r.mending.Store(true)
	r.cq.Wake()
}

// lose makes Receive fail from now on: the device reports that a queue failed.
func (r *receiver) lose(err error) {
	err = fmt.Errorf("multicast is not received any more: %w", err)
	r.fatal.CompareAndSwap(nil, &err)
	r.cq.Wake()
}

// Wake implements fabric.Receiver.
func (r *receiver) Wake() { r.cq.Wake() }

// Pending implements fabric.Receiver. It is true if the last poll found completions, or if an event has
// arrived since.
func (r *receiver) Pending() bool {
	return r.fatal.Load() == nil && (r.busy.Load() || r.cq.pending())
}

// Stats implements fabric.Receiver. Devices do not report datagrams that a full ring drops.
func (r *receiver) Stats() fabric.ReceiverStats {
	return fabric.ReceiverStats{Datagrams: r.datagrams.Load(), Malformed: r.malformed.Load(), Calls: r.calls.Load()}
}

// stop ends Receive, and waits until it has returned.
func (r *receiver) stop() {
	closed := fabric.ErrClosed
	r.fatal.Store(&closed)
	r.cq.stop()
	r.mu.Lock()
	defer r.mu.Unlock()
}

// free frees everything that open made, as far as it did, after the queue pairs.
func (r *receiver) free() {
	if r.srq != nil {
		r.dev.events.disown(unsafe.Pointer(r.srq))
		C.ibv_destroy_srq(r.srq)
	}
	r.cq.destroy()
	r.dev.mem.unregister(r.reg)
}
