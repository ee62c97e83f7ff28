//go:build verbs

package verbs

// #include "shim.h"
import "C"

import (
	"encoding/binary"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/allcast/allcast/internal/fabric"
	"github.com/allcast/allcast/internal/wire"
)

// window is the largest number of batches of a subgroup that the device has at the same time.
const window = 4

// sender multicasts to one subgroup.
//
// Send posts a batch and returns. Each batch in flight has a slot: headers, and room for payloads
// that are not registered. A batch keeps its slot, and its use of the user's memory, until the
// device has completed it.
//
// The id of a work request is the number of its batch, and a bit for the last request of the
// batch. The last request is the only one that is signalled, and it always completes: with
// success, with an error, or flushed. Queue pairs of several communicators share the completion
// queue, so batches may complete out of order; Completed counts them in order.
type sender struct {
	dev   *Device
	cq    *C.struct_ibv_cq
	ev    *event
	head  int
	chunk int
	depth int // slots: at most window
	reg   *region
	heads []byte // Batch headers per slot
	copy  []byte // Batch payloads per slot
	hear  *receiver

	mu      sync.Mutex
	closed  bool
	fatal   error            // reason why nothing can be sent
	base    *udQP            // queue pair of the job
	comms   map[uint32]*udQP // queue pairs of communicators that have one
	failing []*udQP          // queue pairs to bring back
	batches [window]batch    // batch i is at i % depth
	next    uint64           // number of the next batch
	oldest  uint64           // number of the oldest batch in flight
	freed   uint64           // datagrams of all batches before it
	reqs    [Batch]request
	done    [Batch]completion

	sent, doorbells, completions, copied, failures, recoveries atomic.Uint64
	peak                                                       atomic.Uint64 // batches in flight
}

var _ fabric.Sender = (*sender)(nil)

// batch is a batch in flight.
type batch struct {
	q    *udQP
	n    int     // datagrams
	user *region // of its payloads; nil: they were copied
	over bool    // the device no longer needs its memory
}

func (s *sender) open() error {
	per := Batch * (s.head + s.chunk)
	mem, reg, err := s.dev.mem.alloc(s.depth*per, false)
	if err != nil {
		return err
	}
	s.reg, s.heads, s.copy = reg, mem[:s.depth*Batch*s.head], mem[s.depth*Batch*s.head:]
	return nil
}

// Send implements fabric.Sender: one doorbell, and later one completion.
func (s *sender) Send(b *fabric.Batch) (int, error) {
	n := len(b.Headers)
	if n == 0 {
		return 0, nil
	}
	if n > Batch || len(b.Payloads) != n {
		return 0, fmt.Errorf("verbs: a batch of %d headers and %d payloads: at most %d of both", n, len(b.Payloads), Batch)
	}
	for _, p := range b.Payloads {
		// A datagram that does not fit the MTU would complete without an error, and never arrive.
		if len(p) > s.chunk {
			return 0, fmt.Errorf("verbs: a payload of %d bytes: at most %d fit a datagram", len(p), s.chunk)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	q := s.queue(b.Headers[0].Comm)
	if s.full() || q.err != nil {
		s.reap(0, false)
	}
	switch {
	case s.closed:
		return 0, fabric.ErrClosed
	case s.fatal != nil:
		return 0, s.fatal
	case q.broken != nil:
		return 0, q.broken
	case s.full() || q.err != nil:
		return 0, fabric.ErrBusy
	}
	return s.post(q, b)
}

// queue is the queue pair for datagrams of a communicator. s.mu is held.
func (s *sender) queue(comm uint32) *udQP {
	if q := s.comms[comm]; q != nil {
		return q
	}
	return s.base
}

func (s *sender) full() bool { return s.next-s.oldest == uint64(s.depth) }

// post posts a batch, and returns how many of its datagrams the device took. s.mu is held, and
// there is a slot.
func (s *sender) post(q *udQP, b *fabric.Batch) (int, error) {
	n, slot := len(b.Headers), int(s.next%uint64(s.depth))
	user := s.dev.mem.hold(b.Payloads[0])
	for i := range n {
		s.request(i, slot*Batch+i, b.Headers[i], b.Payloads[i], user)
		s.reqs[i].id = cu64(s.next << 1)
	}
	s.reqs[n-1].id |= 1
	s.reqs[n-1].signalled = 1
	s.doorbells.Add(1)
	took, rc := postDatagrams(q, s.reqs[:n])
	if took == 0 {
		if user != nil {
			s.dev.mem.drop(user)
		}
		return 0, s.refused("post a multicast", q, rc)
	}
	s.batches[slot] = batch{q: q, n: took, user: user}
	s.next++
	q.flying++
	s.sent.Add(uint64(took))
	if k := s.next - s.oldest; k > s.peak.Load() {
		s.peak.Store(k)
	}
	if rc == 0 {
		return took, nil
	}
	// The request that would complete is not there: only a reset ends the batch.
	err := s.refused("post a multicast", q, rc)
	s.fail(q, err)
	s.retire()
	return took, err
}

// request makes the ith request of a batch: the header from a slot, the payload from the user's
// memory if the device may read it, else from a copy.
func (s *sender) request(i, at int, h wire.Header, payload []byte, user *region) {
	head := s.heads[at*s.head : (at+1)*s.head]
	binary.LittleEndian.PutUint64(head, h.Token)
	binary.LittleEndian.PutUint32(head[8:], h.Comm)
	if len(head) > headSize {
		binary.LittleEndian.PutUint32(head[headSize:], h.Sum)
	}
	r := &s.reqs[i]
	*r = request{op: opSendImm, len1: 0}
	r.addr0, r.len0, r.key0 = cu64(address(head)), cu32(len(head)), cu32(s.reg.lkey)
	r.imm = cu32(h.Imm)
	if len(payload) == 0 {
		return
	}
	if user == nil || !user.covers(address(payload), uint64(len(payload))) {
		s.copied.Add(1)
		own := s.copy[at*s.chunk:][:len(payload)]
		copy(own, payload)
		payload, user = own, s.reg
	}
	r.addr1, r.len1, r.key1 = cu64(address(payload)), cu32(len(payload)), cu32(user.lkey)
}

// Completed implements fabric.Sender.
func (s *sender) Completed() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reap(0, false)
	return s.freed
}

// Await implements fabric.Sender.
func (s *sender) Await(d time.Duration) {
	s.mu.Lock()
	progress := s.reap(spin(), true)
	s.mendLate()
	idle := progress || s.closed || s.fatal != nil || s.next == s.oldest && len(s.failing) == 0
	s.mu.Unlock()
	if idle {
		return
	}
	s.ev.waitFor(d)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reap(0, false)
}

// reap takes completions if there may be any, and reports whether there were. With arm, and if there
// were none, the next one makes an event. s.mu is held.
func (s *sender) reap(spin int, arm bool) (some bool) {
	if s.next == s.oldest {
		return false
	}
	return s.drain(spin, arm)
}

func (s *sender) drain(spin int, arm bool) (some bool) {
	for !s.closed && s.fatal == nil {
		n := look(s.cq, &s.done, spin, arm)
		if n < 0 {
			s.giveUp(s.dev.failed("look for completions of multicasts", n))
			return true
		}
		for i := range n {
			s.complete(&s.done[i])
		}
		s.retire()
		some = some || n > 0
		if n < Batch {
			break
		}
	}
	return some
}

// complete takes one completion. s.mu is held.
func (s *sender) complete(d *completion) {
	s.completions.Add(1)
	number, last := uint64(d.id)>>1, d.id&1 == 1
	if number < s.oldest || number >= s.next {
		return // its queue pair was reset meanwhile
	}
	b := &s.batches[number%uint64(s.depth)]
	if b.over {
		return // likewise
	}
	if st := Status(d.status); st != StatusSuccess {
		err := s.refused("multicast", b.q, 0)
		err.Status, err.Vendor = st, uint32(d.vendor)
		s.fail(b.q, err)
	} else {
		b.q.inRow = 0
	}
	if last && !b.over {
		s.end(b)
	}
}

// end ends a batch: its memory is free. s.mu is held.
func (s *sender) end(b *batch) {
	b.over = true
	if b.user != nil {
		s.dev.mem.drop(b.user)
		b.user = nil
	}
	b.q.flying--
	if b.q.err != nil && b.q.flying == 0 {
		s.hear.mendSoon()
	}
}

// retire frees the slots of the oldest batches that are over. s.mu is held.
func (s *sender) retire() {
	for s.oldest != s.next {
		b := &s.batches[s.oldest%uint64(s.depth)]
		if !b.over {
			return
		}
		s.freed += uint64(b.n)
		*b = batch{}
		s.oldest++
	}
}

// endAll ends all batches of a queue pair, or with nil those of all. s.mu is held, and the device no
// longer touches their memory. The caller calls retire.
func (s *sender) endAll(q *udQP) {
	for i := s.oldest; i != s.next; i++ {
		if b := &s.batches[i%uint64(s.depth)]; !b.over && (q == nil || b.q == q) {
			s.end(b)
		}
	}
}

// stop ends it: Send fails from now on. The caller holds s.mu, and destroys the queue pairs before
// it calls endAll.
func (s *sender) stop() {
	s.closed = true
	if s.ev != nil {
		s.ev.stop()
	}
}
