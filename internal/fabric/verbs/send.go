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
)

// sender multicasts to one group.
type sender struct {
	dev   *Device
	cq    *C.struct_ibv_cq
	ev    *event
	head  int
	chunk int
	reg   *region
	heads []byte // a header for each datagram of a batch
	copy  []byte // and room for payloads that are not registered

	mu     sync.Mutex
	closed bool
	base   *udQP            // of the job,
	comms  map[uint32]*udQP // and of communicators that have one
	reqs   [Batch]request
	done   [Batch]completion

	sent, doorbells, completions, copied atomic.Uint64
}

func (s *sender) open() error {
	mem, reg, err := s.dev.mem.alloc(Batch*(s.head+s.chunk), false)
	if err != nil {
		return err
	}
	s.reg, s.heads, s.copy = reg, mem[:Batch*s.head], mem[Batch*s.head:]
	return nil
}

// Send implements fabric.Sender: one doorbell, and one completion, which it waits for.
func (s *sender) Send(b *fabric.Batch) error {
	n := len(b.Headers)
	if n == 0 {
		return nil
	}
	if n > Batch || len(b.Payloads) != n {
		return fmt.Errorf("verbs: a batch of %d headers and %d payloads: want at most %d", n, len(b.Payloads), Batch)
	}
	for _, p := range b.Payloads {
		if len(p) > s.chunk {
			return fmt.Errorf("verbs: a payload of %d bytes: at most %d fit, and more would vanish", len(p), s.chunk)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return fabric.ErrClosed
	}
	user := s.dev.mem.hold(b.Payloads[0])
	if user != nil {
		defer s.dev.mem.drop(user)
	}
	for i := range n {
		s.request(i, b.Headers[i], b.Payloads[i], user)
	}
	s.reqs[n-1].signalled = 1
	s.doorbells.Add(1)
	q := s.comms[b.Headers[0].Comm]
	if q == nil {
		q = s.base
	}
	rc := sendDatagrams(q, s.cq, s.reqs[:n], &s.done)
	for rc == 0 {
		if _, err := s.ev.wait(); err != nil {
			return err
		}
		rc = poll(s.cq, &s.done)
	}
	if rc < 0 {
		return s.dev.failed("multicast", rc)
	}
	s.completions.Add(uint64(rc))
	if d := &s.done[0]; Status(d.status) != StatusSuccess {
		return &Error{Op: "multicast", Device: s.dev.String(), QP: q.num, Peer: -1, Status: Status(d.status), Vendor: uint32(d.vendor)}
	}
	s.sent.Add(uint64(n))
	return nil
}

// request makes the ith request of a batch: the header from our ring, the payload from
// where it is, if the device may read there.
func (s *sender) request(i int, h fabric.Header, payload []byte, user *region) {
	head := s.heads[i*s.head : (i+1)*s.head]
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
		own := s.copy[i*s.chunk:][:len(payload)]
		copy(own, payload)
		payload, user = own, s.reg
	}
	r.addr1, r.len1, r.key1 = cu64(address(payload)), cu32(len(payload)), cu32(user.lkey)
}

// stop lets no Send begin any more.
func (s *sender) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	if s.ev != nil {
		s.ev.stop()
	}
}
