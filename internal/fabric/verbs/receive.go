//go:build verbs

package verbs

// #include "shim.h"
import "C"

import (
	"encoding/binary"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/allcast/allcast/internal/fabric"
	"github.com/allcast/allcast/internal/wire"
)

// receiver receives the datagrams of one subgroup from its staging ring.
type receiver struct {
	dev   *Device
	srq   *C.struct_ibv_srq
	cq    *C.struct_ibv_cq
	ev    *event
	head  int
	slots int
	ring  ring
	reg   *region
	mem   []byte
	from  [4]byte // this rank's address, in the echo of its own datagrams

	mend    func()      // of the sender: resets failed queue pairs
	mending atomic.Bool // queue pairs may have failed

	mu    sync.Mutex // held by Receive
	done  [Batch]completion
	again [Batch]uint32 // slots to post again
	n     int           // number of slots in again

	postErr C.int

	fatal                               atomic.Pointer[error] // reason why nothing can be received
	closed, busy                        atomic.Bool
	datagrams, malformed, calls, echoes atomic.Uint64
}

var _ fabric.Receiver = (*receiver)(nil)

func (r *receiver) open() error {
	stride := (grhSize + r.head + r.dev.MTU() + 63) &^ 63
	mem, reg, err := r.dev.mem.alloc(r.slots*stride, false)
	if err != nil {
		return err
	}
	r.mem, r.reg = mem, reg
	r.ring = ring{base: cu64(address(mem)), stride: cu32(stride), key: cu32(reg.lkey)}
	if a := goGID(r.dev.gid.raw); a.Is4In6() {
		r.from = a.Unmap().As4()
	}
	all := make([]uint32, r.slots)
	for i := range all {
		all[i] = uint32(i)
	}
	if rc := postShared(r.srq, &r.ring, all); rc != 0 {
		return r.dev.failed(fmt.Sprintf("post %d receives", r.slots), rc)
	}
	return nil
}

// Attach implements fabric.Receiver. There is no poller for completion queues.
func (r *receiver) Attach(fabric.Sink, func(error)) bool { return false }

// Receive implements fabric.Receiver. A batch costs one call into C: it posts the last batch's slots
// again and takes the next completions.
func (r *receiver) Receive(s fabric.Sink) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	for got := false; ; {
		if r.closed.Load() {
			return fabric.ErrClosed
		}
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
				r.hand(s, &r.done[i])
			}
			if !r.ev.woken.Load() {
				continue
			}
		}
		if got || r.ev.woken.Load() {
			r.ev.seen()
			s.Idle()
			return nil
		}
		if _, err := r.ev.wait(); err != nil {
			return err
		}
	}
}

// hand hands one datagram to the sink.
func (r *receiver) hand(s fabric.Sink, d *completion) {
	i := int(d.id)
	r.again[r.n] = uint32(i)
	r.n++
	if Status(d.status) != StatusSuccess {
		r.malformed.Add(1) // too long for a slot, the only way a receive can fail
		return
	}
	m := r.mem[i*int(r.ring.stride):][:d.len]
	if len(m) < grhSize+r.head || d.flags&withImm == 0 {
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
	if r.dev.attr.link == linkEthernet {
		return [4]byte(m[32:36]) == r.from
	}
	for i, b := range r.dev.gid.raw {
		if m[8+i] != byte(b) {
			return false
		}
	}
	return true
}

// mendSoon makes the receive worker bring queue pairs back.
func (r *receiver) mendSoon() {
	r.mending.Store(true)
	r.ev.Wake()
}

// lose makes Receive fail from now on: the device reports that a queue failed.
func (r *receiver) lose(err error) {
	err = fmt.Errorf("multicast is not received any more: %w", err)
	r.fatal.Store(&err)
	r.ev.Wake()
}

// Wake implements fabric.Receiver.
func (r *receiver) Wake() { r.ev.Wake() }

// Pending implements fabric.Receiver. It is true if the last poll found completions, or if an event has
// arrived since.
func (r *receiver) Pending() bool {
	return !r.closed.Load() && r.fatal.Load() == nil && (r.busy.Load() || r.ev.pending())
}

// Stats implements fabric.Receiver. Devices do not report datagrams that a full ring drops.
func (r *receiver) Stats() fabric.ReceiverStats {
	return fabric.ReceiverStats{Datagrams: r.datagrams.Load(), Malformed: r.malformed.Load(), Calls: r.calls.Load()}
}

// stop ends Receive, and waits until it has returned.
func (r *receiver) stop() {
	r.closed.Store(true)
	if r.ev != nil {
		r.ev.stop()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
}
