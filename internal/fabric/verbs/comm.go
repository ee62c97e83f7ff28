//go:build verbs

package verbs

// #include "shim.h"
import "C"

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"
	"unsafe"
)

// udQP is a queue pair in a group. A queue pair whose communicator was removed has left its group, and
// waits for another one.
type udQP struct {
	qp   *C.struct_ibv_qp
	num  uint32
	echo bool // the queue pair receives its own datagrams

	// Guarded by sender.mu.
	group  *group
	ah     *C.struct_ibv_ah   // of the group
	oldAHs []*C.struct_ibv_ah // earlier addresses, which requests may still use
	flying int                // batches in flight
	err    error              // reason why the queue pair must be reset
	since  time.Time          // time of err
	inRow  int                // failures since the last success
	broken error              // reason why the queue pair is unusable
}

// join makes a queue pair and adds it to a group. The queue pairs of a subgroup share completion queues
// and the staging ring.
func (m *Multicast) join(s *sender, addr netip.Addr) (*udQP, error) {
	d := m.dev
	g, err := join(d, &m.cfg, addr)
	if err != nil {
		return nil, err
	}
	q := s.reuse(g)
	if q == nil {
		q = &udQP{group: g}
		var echo C.int
		if rc := C.ac_ud_qp(d.pd, s.cq.cq, s.receiver.cq.cq, s.receiver.srq, C.int(s.depth*Batch), C.int(d.port), g.at.qkey,
			&echo, &q.qp); rc != 0 {
			g.leave()
			return nil, d.failed("create a UD queue pair", int(rc))
		}
		q.num, q.echo = uint32(q.qp.qp_num), echo != 0
		d.events.own(unsafe.Pointer(q.qp), func(err error) { s.failed(q, err) })
	}
	if q.ah, err = m.addressOf(&g.at); err == nil {
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

// addressOf makes a device's address of a group.
func (m *Multicast) addressOf(to *groupAddress) (*C.struct_ibv_ah, error) {
	d := m.dev
	ah, err := C.ac_mcast_ah(d.pd, to, C.int(d.port), C.int(d.attr.link), C.int(d.gid.index), C.int(m.cfg.TTL),
		C.int(m.cfg.DSCP<<2))
	if ah == nil {
		return nil, d.errno("make an address of the group", err)
	}
	return ah, nil
}

// rebind attaches a queue pair to its group after rdma_cm has joined the group again: the subnet manager
// may have given the group another LID. If the group has another key, rebind fails and changes nothing,
// since a queue pair cannot change its key.
func (m *Multicast) rebind(s *sender, q *udQP) error {
	g := q.group
	if g.cm.at.qkey != g.at.qkey {
		return fmt.Errorf("the group has another key: %#x instead of %#x", g.cm.at.qkey, g.at.qkey)
	}
	g.detach(q) // from the group's previous address
	ah, err := m.addressOf(&g.cm.at)
	if err != nil {
		return err
	}
	s.mu.Lock()
	q.oldAHs = append(q.oldAHs, q.ah)
	q.ah, g.at = ah, g.cm.at
	s.mu.Unlock()
	return g.attach(m.dev, q)
}

// reuse takes a queue pair that has left its group, for another group; nil: there is none.
func (s *sender) reuse(g *group) (q *udQP) {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.IndexFunc(s.spare, func(q *udQP) bool { return q.err == nil && q.broken == nil })
	if i >= 0 {
		q = s.spare[i]
		s.spare = slices.Delete(s.spare, i, i+1)
		q.group, q.inRow = g, 0
	}
	return q
}

// part takes a queue pair out of its group, and keeps it for another group. The caller no longer sends
// with it. Destroying it would lose the completions of datagrams that it has received, and with them
// slots of the shared ring.
func (s *sender) part(q *udQP) {
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
	s.mu.Lock()
	defer s.mu.Unlock()
	q.ah, q.oldAHs = nil, nil
	s.spare = append(s.spare, q)
}

// failed handles the failure of a queue pair that the device reports.
func (s *sender) failed(q *udQP, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if slices.Contains(s.spare, q) {
		q.broken = err
		return
	}
	s.fail(q, err)
}

// remove makes datagrams of a communicator go to the job's group, and returns the communicator's queue
// pair; nil: it has none. Datagrams in flight are abandoned: all operations of the communicator have
// ended.
func (s *sender) remove(id uint32) *udQP {
	s.mu.Lock()
	defer s.mu.Unlock()
	q := s.comms[id]
	if q == nil {
		return nil
	}
	delete(s.comms, id)
	s.reap(false)
	if q.flying > 0 {
		setError(q.qp)
		q.broken = errors.New("the communicator was removed while the queue pair sent")
		s.endAll(q)
	}
	s.mended(q)
	return q
}

// AddComm implements fabric.CommGroups: the communicator gets a group and a queue pair per
// subgroup. Close waits for it.
func (m *Multicast) AddComm(id uint32, name string) error {
	if m.cfg.Derive == nil || !m.mu.TryRLock() {
		return nil // without groups of their own, or after Close
	}
	defer m.mu.RUnlock()
	var made []*udQP
	for i, s := range m.subs {
		q, err := m.join(s, m.cfg.Derive(name, i))
		if err != nil {
			for i, q := range made {
				m.subs[i].part(q)
			}
			return err
		}
		made = append(made, q)
	}
	for i, s := range m.subs {
		s.mu.Lock()
		s.comms[id] = made[i]
		s.mu.Unlock()
	}
	return nil
}

// RemoveComm implements fabric.CommGroups.
func (m *Multicast) RemoveComm(id uint32) {
	if !m.mu.TryRLock() {
		return // after Close
	}
	defer m.mu.RUnlock()
	for _, s := range m.subs {
		if q := s.remove(id); q != nil {
			s.part(q)
		}
	}
}
