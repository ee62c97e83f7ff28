//go:build verbs

package verbs

// #include "shim.h"
import "C"

import (
	"net/netip"
)

// udQP is a queue pair in a group.
type udQP struct {
	qp          *C.struct_ibv_qp
	ah          *C.struct_ibv_ah // of the group
	group       *group
	farQP, qkey C.uint32_t
	num         uint32
}

// join makes a queue pair that is in a group. Those of a subgroup share completion queues
// and staging ring.
func (m *Multicast) join(s *subgroup, addr netip.Addr) (*udQP, error) {
	d := m.dev
	g, err := join(d, &m.cfg, addr)
	if err != nil {
		return nil, err
	}
	q := &udQP{group: g, farQP: C.uint32_t(g.qpn), qkey: C.uint32_t(g.qkey)}
	if n := len(s.spare); n > 0 {
		q.qp, s.spare = s.spare[n-1], s.spare[:n-1]
	} else {
		var echo C.int
		if rc := C.ac_ud_qp(d.pd, s.sender.cq, s.receiver.cq, s.srq, Batch, C.int(d.port), q.qkey, 0, &echo, &q.qp); rc != 0 {
			g.leave()
			return nil, d.failed("create a UD queue pair", int(rc))
		}
		s.echo = s.echo || echo != 0
	}
	q.num = uint32(q.qp.qp_num)
	q.ah, err = C.ac_mcast_ah(d.pd, g.raw(), C.uint32_t(g.mlid), C.int(d.port), C.int(d.attr.link), C.int(d.gid.index), C.int(m.cfg.TTL), C.int(m.cfg.DSCP<<2), C.int(g.sl))
	if q.ah == nil {
		err = d.errno("make an address of the group", err)
	} else {
		err = g.attach(d, q)
	}
	if err != nil {
		s.part(q)
		return nil, err
	}
	return q, nil
}

// part takes a queue pair out of its group. It is kept for another one: what it has received
// is in slots of the ring that all share, and to destroy it would lose those.
func (s *subgroup) part(q *udQP) {
	q.group.detach(q)
	if q.ah != nil {
		C.ibv_destroy_ah(q.ah)
	}
	q.group.leave()
	s.spare = append(s.spare, q.qp)
}

// AddComm implements fabric.CommMulticast: the communicator gets a group and a queue pair a
// subgroup.
func (m *Multicast) AddComm(id uint32, name string) error {
	if m.cfg.Derive == nil {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return nil
	}
	for i, s := range m.subs {
		q, err := m.join(s, m.cfg.Derive(name, i))
		if err != nil {
			return err // what is not there is sent to the job's group, where all are
		}
		s.qps[id] = q
		s.sender.mu.Lock()
		s.comms[id] = q
		s.sender.mu.Unlock()
	}
	return nil
}

// RemoveComm implements fabric.CommMulticast.
func (m *Multicast) RemoveComm(id uint32) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return
	}
	for _, s := range m.subs {
		q := s.qps[id]
		if q == nil {
			continue
		}
		s.sender.mu.Lock() // nothing of it is being sent
		delete(s.comms, id)
		s.sender.mu.Unlock()
		delete(s.qps, id)
		s.part(q)
	}
}
