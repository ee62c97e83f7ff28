//go:build verbs

package verbs

// #include "shim.h"
import "C"

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"
	"unsafe"

	"github.com/allcast/allcast/internal/fabric"
	"github.com/allcast/allcast/internal/wire"
)

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
	dev      *Device
	receiver *receiver // of the same subgroup
	cq       *completionQueue
	slots    sendSlots

	mu      sync.Mutex
	fatal   error            // reason why nothing can be sent: fabric.ErrClosed, or a failure
	base    *udQP            // queue pair of the job
	comms   map[uint32]*udQP // queue pairs of communicators that have one
	failing []*udQP          // queue pairs to bring back
	spare   []*udQP          // queue pairs without a group, for reuse unless they failed
	window
	reqs     [Batch]request
	counters sendCounters
}

var _ fabric.Sender = (*sender)(nil)

// sendCounters count events of a sender.
type sendCounters struct {
	sent, copied         uint64 // datagrams
	doorbells            uint64
	completions          uint64
	failures, recoveries uint64 // of queue pairs
	peak                 uint64 // largest number of batches in flight
}

// maxWindow is the largest number of batches of a subgroup that the device has at the same time.
const maxWindow = 4

// window is the batches in flight, in order.
type window struct {
	depth   int              // slots: at most maxWindow
	batches [maxWindow]batch // batch i is at i % depth
	next    uint64           // number of the next batch
	oldest  uint64           // number of the oldest batch in flight
	freed   uint64           // datagrams of all batches before it
}

// batch is a batch in flight.
type batch struct {
	q    *udQP
	n    int     // datagrams
	user *region // of its payloads; nil: they were copied
	over bool    // the device no longer needs its memory
}

func (w *window) full() bool { return w.next-w.oldest == uint64(w.depth) }

func (w *window) slot(number uint64) int { return int(number % uint64(w.depth)) }

// inFlight yields the batches that are not over.
func (w *window) inFlight(yield func(*batch) bool) {
	for i := w.oldest; i != w.next; i++ {
		if b := &w.batches[w.slot(i)]; !b.over && !yield(b) {
			return
		}
	}
}

// retire frees the slots of the oldest batches that are over.
func (w *window) retire() {
	for ; w.oldest != w.next && w.batches[w.slot(w.oldest)].over; w.oldest++ {
		w.freed += uint64(w.batches[w.slot(w.oldest)].n)
	}
}

// sendSlots is memory that the device reads: Batch headers, and Batch copies of payloads, per slot.
type sendSlots struct {
	head, chunk   int // sizes
	reg           *region
	heads, copies []byte
}

// request makes request i of all slots: its header, and its payload from the user's memory if the device
// may read it, else from a copy.
func (s *sendSlots) request(i int, h wire.Header, payload []byte, user *region) (r request, copied bool) {
	head := s.heads[i*s.head:][:s.head]
	binary.LittleEndian.PutUint64(head, h.Token)
	binary.LittleEndian.PutUint32(head[8:], h.Comm)
	if len(head) > headSize {
		binary.LittleEndian.PutUint32(head[headSize:], h.Sum)
	}
	r = request{
		op: opSendImm, imm: cu32(h.Imm), addr0: cu64(address(head)), len0: cu32(len(head)), key0: cu32(s.reg.lkey),
	}
	if len(payload) == 0 {
		return r, false
	}
	if user == nil || !user.covers(address(payload), uint64(len(payload))) {
		own := s.copies[i*s.chunk:][:len(payload)]
		copy(own, payload)
		payload, user, copied = own, s.reg, true
	}
	r.addr1, r.len1, r.key1 = cu64(address(payload)), cu32(len(payload)), cu32(user.lkey)
	return r, copied
}

func (s *sender) open() (err error) {
	// After an error every request completes, not only the last of a batch.
	if s.cq, err = newCompletionQueue(s.dev, s.depth*Batch); err != nil {
		return err
	}
	s.cq.own(s.lose)
	heads := s.depth * Batch * s.slots.head
	mem, reg, err := s.dev.mem.alloc(heads+s.depth*Batch*s.slots.chunk, false)
	if err != nil {
		return err
	}
	s.slots.reg, s.slots.heads, s.slots.copies = reg, mem[:heads], mem[heads:]
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
		if len(p) > s.slots.chunk {
			return 0, fmt.Errorf("verbs: a payload of %d bytes: at most %d fit a datagram", len(p), s.slots.chunk)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	q := s.queue(b.Headers[0].Comm)
	if s.full() || q.err != nil {
		s.reap(false)
	}
	switch {
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
func (s *sender) queue(comm uint32) *udQP { return cmp.Or(s.comms[comm], s.base) }

// post posts a batch, and returns how many of its datagrams the device took. s.mu is held, and
// there is a slot.
func (s *sender) post(q *udQP, b *fabric.Batch) (int, error) {
	n, slot := len(b.Headers), s.slot(s.next)
	user := s.dev.mem.find(b.Payloads[0], holdUser)
	for i := range n {
		r, copied := s.slots.request(slot*Batch+i, b.Headers[i], b.Payloads[i], user)
		if copied {
			s.counters.copied++
		}
		r.id = cu64(s.next << 1)
		s.reqs[i] = r
	}
	s.reqs[n-1].id |= 1
	s.reqs[n-1].signalled = 1
	s.counters.doorbells++
	took, rc := q.post(s.reqs[:n])
	if took == 0 {
		if user != nil {
			s.dev.mem.release(user, holdUser)
		}
		return 0, s.refused("post a multicast", q, rc)
	}
	s.batches[slot] = batch{q: q, n: took, user: user}
	s.next++
	q.flying++
	s.counters.sent += uint64(took)
	s.counters.peak = max(s.counters.peak, s.next-s.oldest)
	if rc == 0 {
		return took, nil
	}
	// The request that would complete is not there: only a reset ends the batch.
	err := s.refused("post a multicast", q, rc)
	s.fail(q, err)
	return took, err
}

// Completed implements fabric.Sender.
func (s *sender) Completed() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reap(false)
	return s.freed
}

// Await implements fabric.Sender.
func (s *sender) Await(d time.Duration) {
	s.mu.Lock()
	progress := s.reap(true)
	s.restoreIf(func(q *udQP) bool { return time.Since(q.since) > drainBound })
	idle := progress || s.fatal != nil || s.next == s.oldest && len(s.failing) == 0
	s.mu.Unlock()
	if idle {
		return
	}
	s.cq.waitFor(d)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reap(false)
}

// reap takes completions if there may be any, and reports whether there were. With arm, and if there
// were none, the next one makes an event. s.mu is held.
func (s *sender) reap(arm bool) (some bool) { return s.next != s.oldest && s.drain(arm) }

func (s *sender) drain(arm bool) (some bool) {
	for s.fatal == nil {
		n := s.cq.poll(arm)
		if n < 0 {
			s.giveUp(s.dev.failed("look for completions of multicasts", n))
			return true
		}
		for i := range n {
			s.complete(&s.cq.done[i])
		}
		some = some || n > 0
		if n < Batch {
			break
		}
	}
	return some
}

// complete takes one completion. s.mu is held.
func (s *sender) complete(d *completion) {
	s.counters.completions++
	number, last := uint64(d.id)>>1, d.id&1 == 1
	if number < s.oldest || number >= s.next {
		return // its queue pair was reset meanwhile
	}
	b := &s.batches[s.slot(number)]
	if b.over {
		return // likewise
	}
	if Status(d.status) != StatusSuccess {
		s.fail(b.q, s.refused("multicast", b.q, 0).with(d))
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
		s.dev.mem.release(b.user, holdUser)
		b.user = nil
	}
	b.q.flying--
	if b.q.err != nil && b.q.flying == 0 {
		s.receiver.mendSoon()
	}
	s.retire()
}

// endAll ends all batches of a queue pair, or with nil those of all. s.mu is held, and the device no
// longer touches their memory.
func (s *sender) endAll(q *udQP) {
	for b := range s.inFlight {
		if q == nil || b.q == q {
			s.end(b)
		}
	}
}

// close makes Send fail, leaves the groups, and frees everything that open made, as far as it did. Once
// the queue pairs are destroyed, the device reads no memory any more, and all datagrams have completed.
func (s *sender) close() {
	s.mu.Lock()
	s.fatal = fabric.ErrClosed
	s.cq.stop()
	all := slices.Collect(maps.Values(s.comms))
	if s.base != nil {
		all = append(all, s.base)
	}
	for _, q := range all {
		if q.flying > 0 {
			setError(q.qp) // requests use the group's address, which part destroys first
		}
	}
	s.mu.Unlock()
	for _, q := range all {
		s.part(q)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, q := range s.spare {
		s.dev.events.disown(unsafe.Pointer(q.qp))
		C.ibv_destroy_qp(q.qp)
	}
	s.endAll(nil)
	s.cq.destroy()
	s.dev.mem.unregister(s.slots.reg)
}
