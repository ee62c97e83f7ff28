//go:build verbs

package verbs

// #include "shim.h"
import "C"

import (
	"fmt"
	"net/netip"
	"sync"

	"github.com/allcast/allcast/internal/fabric"
)

const (
	grhSize   = 40 // in front of every datagram that a UD queue pair receives
	headSize  = 12 // token and communicator; the immediate has a place of its own
	ringSlots = 1024
	ringLeast = 64
)

// McastConfig says which groups to open.
type McastConfig struct {
	Groups []netip.Addr // IPv4, one a subgroup
	Chunk  int          // agreed with the others; 0: the largest that fits
	TTL    int          // 0: 16
	DSCP   int
	Bytes  int    // of a staging ring; 0: 1024 slots
	Sums   bool   // headers carry a checksum
	QKey   uint32 // the same on all ranks
	CM     bool   // join through rdma_cm also where an IP join does
}

// Multicast is the fast path: a UD queue pair a subgroup.
type Multicast struct {
	dev       *Device
	caps      fabric.Caps
	senders   []*sender
	receivers []*receiver
	groups    []*group
	once      sync.Once
}

var _ fabric.Multicast = (*Multicast)(nil)

// udQP is a queue pair with where it sends to.
type udQP struct {
	qp             *C.struct_ibv_qp
	ah             *C.struct_ibv_ah
	farQP, qkey    C.uint32_t
	sendCQ, recvCQ *C.struct_ibv_cq
	num            uint32
	echo           bool // it hears itself
	postErr        C.int
}

// MaxChunk is the largest payload of a datagram.
func (d *Device) MaxChunk(sums bool) int { return d.MTU() - header(sums) }

func header(sums bool) int {
	if sums {
		return headSize + fabric.SumSize
	}
	return headSize
}

// What RoCE v2 puts around a payload: Ethernet, IPv4, UDP, BTH, DETH, immediate, ICRC.
const wireOverhead = 18 + 20 + 8 + 12 + 8 + 4 + 4

// OpenMulticast joins the groups.
func OpenMulticast(d *Device, cfg McastConfig) (*Multicast, error) {
	limit := d.MaxChunk(cfg.Sums)
	if cfg.Chunk == 0 {
		cfg.Chunk = limit
	}
	// A datagram that does not fit the MTU completes without an error and never arrives.
	if cfg.Chunk < 1 || cfg.Chunk > limit {
		return nil, fmt.Errorf("verbs: %v: chunks of %d bytes: at most %d fit its MTU of %d", d, cfg.Chunk, limit, d.MTU())
	}
	if d.attr.max_sge < 2 {
		return nil, fmt.Errorf("verbs: %v gathers from %d places: we need 2", d, d.attr.max_sge)
	}
	d.retain()
	m := &Multicast{dev: d}
	for _, g := range cfg.Groups {
		if err := m.open(&cfg, g); err != nil {
			_ = m.Close()
			return nil, err
		}
	}
	r := m.receivers[0]
	room := r.slots - r.slots/8
	if r.q.echo {
		room = r.slots / 2 // our own datagrams take slots too, for a moment
	}
	m.caps = fabric.Caps{
		Chunk: cfg.Chunk, Batch: min(Batch, max(1, room/4)), Room: room, Overhead: wireOverhead + header(cfg.Sums),
		Header: header(cfg.Sums) + 4, // with the immediate
	}
	return m, nil
}

// open makes one subgroup.
func (m *Multicast) open(cfg *McastConfig, addr netip.Addr) error {
	d := m.dev
	g, err := join(d, cfg, addr)
	if err != nil {
		return err
	}
	m.groups = append(m.groups, g)
	head := header(cfg.Sums)
	slots := ringSlots
	if cfg.Bytes > 0 {
		slots = cfg.Bytes / (grhSize + head + cfg.Chunk)
	}
	slots = min(max(slots, ringLeast), int(d.attr.max_qp_wr), int(d.attr.max_cqe))
	s := &sender{dev: d, head: head, chunk: cfg.Chunk}
	r := &receiver{dev: d, head: head, slots: slots}
	q := &udQP{farQP: C.uint32_t(g.qpn), qkey: C.uint32_t(g.qkey)}
	s.q, r.q = q, q
	m.senders, m.receivers = append(m.senders, s), append(m.receivers, r)
	if s.ev, err = newEvent(d); err != nil {
		return err
	}
	if r.ev, err = newEvent(d); err != nil {
		return err
	}
	if q.sendCQ, err = C.ac_cq(d.ctx, Batch, s.ev.ch); q.sendCQ == nil {
		return d.errno("create a completion queue", err)
	}
	if q.recvCQ, err = C.ac_cq(d.ctx, C.int(slots), r.ev.ch); q.recvCQ == nil {
		return d.errno(fmt.Sprintf("create a completion queue of %d", slots), err)
	}
	var echo C.int
	if rc := C.ac_ud_qp(d.pd, q.sendCQ, q.recvCQ, Batch, C.int(slots), C.int(d.port), q.qkey, 0, &echo, &q.qp); rc != 0 {
		return d.failed("create a UD queue pair", int(rc))
	}
	q.num, q.echo = uint32(q.qp.qp_num), echo != 0
	ttl := cfg.TTL
	if ttl == 0 {
		ttl = 16
	}
	if q.ah, err = C.ac_mcast_ah(d.pd, g.raw(), C.uint32_t(g.mlid), C.int(d.port), C.int(d.attr.link), C.int(d.gid.index), C.int(ttl), C.int(cfg.DSCP<<2), C.int(g.sl)); q.ah == nil {
		return d.errno("make an address of the group", err)
	}
	if err := s.open(); err != nil {
		return err
	}
	if err := r.open(); err != nil {
		return err
	}
	return g.attach(d, q)
}

// Caps is what was found.
func (m *Multicast) Caps() fabric.Caps { return m.caps }

// Subgroups is the number of groups.
func (m *Multicast) Subgroups() int { return len(m.senders) }

// Sender sends to a subgroup.
func (m *Multicast) Sender(sub int) fabric.Sender { return m.senders[sub] }

// Receiver receives what others send to a subgroup.
func (m *Multicast) Receiver(sub int) fabric.Receiver { return m.receivers[sub] }

// Counters counts what a subgroup's queue pair did.
type Counters struct {
	Sent, Doorbells, Completions uint64 // datagrams, and what a batch should have one of
	Copied                       uint64 // datagrams that were not sent from the user's memory
	Received, Echoes             uint64 // datagrams, and our own
	Calls                        uint64 // into C that returned datagrams
}

// Counters of a subgroup.
func (m *Multicast) Counters(sub int) Counters {
	s, r := m.senders[sub], m.receivers[sub]
	return Counters{
		Sent: s.sent.Load(), Doorbells: s.doorbells.Load(), Completions: s.completions.Load(), Copied: s.copied.Load(),
		Received: r.datagrams.Load(), Echoes: r.echoes.Load(), Calls: r.calls.Load(),
	}
}

// Close makes Receive and Send return fabric.ErrClosed, waits until they have let go of
// their memory, and leaves the groups. A Sink must not call it.
func (m *Multicast) Close() error {
	m.once.Do(func() {
		for _, r := range m.receivers {
			r.stop()
		}
		for _, s := range m.senders {
			s.stop()
		}
		for i, g := range m.groups {
			if i < len(m.receivers) {
				m.free(g, m.senders[i], m.receivers[i])
			}
			g.leave()
		}
		m.dev.release()
	})
	return nil
}

// free takes one subgroup down, as far as it was made.
func (m *Multicast) free(g *group, s *sender, r *receiver) {
	q := r.q
	if q.qp != nil {
		g.detach(q)
		C.ibv_destroy_qp(q.qp)
	}
	if q.ah != nil {
		C.ibv_destroy_ah(q.ah)
	}
	for _, cq := range []*C.struct_ibv_cq{q.sendCQ, q.recvCQ} {
		if cq != nil {
			C.ibv_destroy_cq(cq)
		}
	}
	for _, ev := range []*event{s.ev, r.ev} {
		if ev != nil {
			ev.destroy()
		}
	}
	for _, mem := range []*region{s.reg, r.reg} {
		if mem != nil {
			m.dev.mem.unregister(mem)
		}
	}
}
