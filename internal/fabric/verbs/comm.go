//go:build verbs

package verbs

// #include "shim.h"
import "C"

import (
	"fmt"
	"net/netip"
	"slices"
	"time"
	"unsafe"
)

// udQP is a queue pair in a group.
type udQP struct {
	qp          *C.struct_ibv_qp
	ah          *C.struct_ibv_ah   // of the group; guarded by sender.mu
	oldAHs      []*C.struct_ibv_ah // earlier addresses, which requests may still use
	group       *group
	farQP, qkey C.uint32_t
	num         uint32
	echo        bool // the queue pair receives its own datagrams

	// Guarded by sender.mu.
	flying int       // batches in flight
	err    error     // reason why the queue pair must be reset
	since  time.Time // time of err
	inRow  int       // failures since the last success
	broken error     // reason why the queue pair is unusable
}

// join makes a queue pair and adds it to a group. The queue pairs of a subgroup share completion queues
// and the staging ring.
func (m *Multicast) join(s *subgroup, addr netip.Addr) (*udQP, error) {
	d := m.dev
	g, err := join(d, &m.cfg, addr)
	if err != nil {
		return nil, err
	}
	q := &udQP{group: g, farQP: C.uint32_t(g.qpn), qkey: C.uint32_t(g.qkey)}
	if q.qp = s.reuse(); q.qp == nil {
		var echo C.int
		depth := C.int(s.depth * Batch)
		rc := C.ac_ud_qp(d.pd, s.sender.cq, s.receiver.cq, s.srq, depth, C.int(d.port), q.qkey, &echo, &q.qp)
		if rc != 0 {
			g.leave()
			return nil, d.failed("create a UD queue pair", int(rc))
		}
		q.echo = echo != 0
		qp := q.qp
		d.events.own(unsafe.Pointer(qp), func(err error) { s.failed(qp, err) })
	}
	q.num = uint32(q.qp.qp_num)
	if q.ah, err = m.addressOf(g); err == nil {
		err = g.attach(d, q)
	}
	if err == nil {
		err = g.keep(d, func() error { return m.rebind(s, q) })
	}
	if err != nil {
		s.part(q)
		return nil, err
	}
	return q, nil
}

// addressOf makes the address of a group.
func (m *Multicast) addressOf(g *group) (*C.struct_ibv_ah, error) {
	d := m.dev
	ah, err := C.ac_mcast_ah(d.pd, g.raw(), C.uint32_t(g.mlid), C.int(d.port), C.int(d.attr.link), C.int(d.gid.index),
		C.int(m.cfg.TTL), C.int(m.cfg.DSCP<<2), C.int(g.sl))
	if ah == nil {
		return nil, d.errno("make an address of the group", err)
	}
	return ah, nil
}

// rebind attaches a queue pair to its group after rdma_cm has joined the group again: the subnet manager
// may have given the group another LID. If the group has another key, rebind fails and changes nothing,
// since a queue pair cannot change its key.
func (m *Multicast) rebind(s *subgroup, q *udQP) error {
	g := q.group
	if g.cm.qkey != q.qkey {
		return fmt.Errorf("the group has another key: %#x instead of %#x", g.cm.qkey, q.qkey)
	}
	g.detach(q) // from the group's previous address
	g.learn()
	ah, err := m.addressOf(g)
	if err != nil {
		return err
	}
	s.sender.mu.Lock()
	q.oldAHs = append(q.oldAHs, q.ah)
	q.ah = ah
	s.sender.mu.Unlock()
	return g.attach(m.dev, q)
}

// reuse takes a queue pair that a removed communicator has left; nil: there is none.
func (s *subgroup) reuse() (qp *C.struct_ibv_qp) {
	s.sender.mu.Lock()
	defer s.sender.mu.Unlock()
	if n := len(s.spare); n > 0 {
		qp, s.spare = s.spare[n-1], s.spare[:n-1]
	}
	return qp
}

// part takes a queue pair out of its group, and keeps it for another group. The caller no longer sends
// with it. Destroying it would lose the completions of datagrams that it has received, and with them
// slots of the shared ring.
func (s *subgroup) part(q *udQP) {
	if k := q.group.keeper; k != nil {
		k.stop()
	}
	q.group.detach(q)
	for _, ah := range append(q.oldAHs, q.ah) {
		if ah != nil {
			C.ibv_destroy_ah(ah)
		}
	}
	q.group.leave()
	s.sender.mu.Lock()
	defer s.sender.mu.Unlock()
	if q.err != nil || q.broken != nil {
		s.dead = append(s.dead, q.qp)
		return
	}
	s.spare = append(s.spare, q.qp)
}

// failed handles the failure of a queue pair that the device reports.
func (s *subgroup) failed(qp *C.struct_ibv_qp, err error) {
	s.sender.mu.Lock()
	defer s.sender.mu.Unlock()
	for _, q := range s.comms {
		if q.qp == qp {
			s.fail(q, err)
		}
	}
	if s.base != nil && s.base.qp == qp {
		s.fail(s.base, err)
	}
	if i := slices.Index(s.spare, qp); i >= 0 {
		s.spare = slices.Delete(s.spare, i, i+1)
		s.dead = append(s.dead, qp)
	}
}

// add makes datagrams of a communicator go through a queue pair.
func (s *subgroup) add(id uint32, q *udQP) {
	s.sender.mu.Lock()
	defer s.sender.mu.Unlock()
	s.comms[id] = q
}

// remove makes datagrams of a communicator go to the job's group, and returns the communicator's queue
// pair; nil: it has none. Datagrams in flight are abandoned: all operations of the communicator have
// ended.
func (s *subgroup) remove(id uint32) *udQP {
	s.sender.mu.Lock()
	defer s.sender.mu.Unlock()
	q := s.comms[id]
	if q == nil {
		return nil
	}
	delete(s.comms, id)
	s.reap(0, false)
	if q.flying > 0 {
		setError(q.qp)
		q.broken = errRemoved
		s.endAll(q)
		s.retire()
	}
	s.failing = slices.DeleteFunc(s.failing, func(f *udQP) bool { return f == q })
	return q
}

// AddComm implements fabric.CommGroups: the communicator gets a group and a queue pair per
// subgroup. It holds no lock while it waits for the network.
func (m *Multicast) AddComm(id uint32, name string) error {
	m.mu.Lock()
	if m.closed || m.cfg.Derive == nil {
		m.mu.Unlock()
		return nil
	}
	m.adding.Add(1)
	m.mu.Unlock()
	defer m.adding.Done()
	var made []*udQP
	undo := func() {
		for i, q := range made {
			m.subs[i].part(q)
		}
	}
	for i, s := range m.subs {
		q, err := m.join(s, m.cfg.Derive(name, i))
		if err != nil {
			undo()
			return err
		}
		made = append(made, q)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		undo()
		return nil
	}
	for i, s := range m.subs {
		s.add(id, made[i])
	}
	return nil
}

// RemoveComm implements fabric.CommGroups.
func (m *Multicast) RemoveComm(id uint32) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return
	}
	for _, s := range m.subs {
		if q := s.remove(id); q != nil {
			s.part(q)
		}
	}
}
