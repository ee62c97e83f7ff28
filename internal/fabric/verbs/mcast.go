//go:build verbs

package verbs

// #include "shim.h"
import "C"

import (
	"fmt"
	"net/netip"
	"sync"

	"github.com/allcast/allcast/internal/fabric"
	"github.com/allcast/allcast/internal/wire"
)

const (
	grhSize   = 40 // bytes in front of every datagram that a UD queue pair receives
	headSize  = 12 // bytes of token and communicator; the device carries the immediate
	ringSlots = 1024
	minSlots  = 64
)

// McastConfig configures the unreliable side.
type McastConfig struct {
	Groups []netip.Addr // IPv4, one per subgroup
	// Derive returns the groups of further communicators. nil: they share the groups of the job.
	Derive        func(comm string, sub int) netip.Addr
	Chunk         int // payload of a datagram, the same on all ranks; 0: the largest that fits
	TTL           int // 0: 16
	DSCP          int
	ReceiveBuffer int    // bytes of a staging ring; 0: 1024 slots
	Sums          bool   // headers carry a checksum
	QKey          uint32 // the same on all ranks
	CM            bool   // join through rdma_cm even where an IP join is enough
}

// Multicast is the unreliable side. Each subgroup has a staging ring, completion queues, and a UD queue
// pair per communicator.
type Multicast struct {
	dev  *Device
	cfg  McastConfig
	caps fabric.Capabilities
	subs []*sender

	mu   sync.RWMutex // held for good by Close, and for reading by calls that Close waits for
	once sync.Once    // of Close
}

var (
	_ fabric.Multicast  = (*Multicast)(nil)
	_ fabric.CommGroups = (*Multicast)(nil)
)

// MaxChunk is the largest payload of a datagram.
func (d *Device) MaxChunk(sums bool) int { return d.MTU() - header(sums) }

func header(sums bool) int {
	if sums {
		return headSize + wire.SumSize
	}
	return headSize
}

// wireOverhead is what RoCE v2 adds to a payload: Ethernet, IPv4, UDP, BTH, DETH, immediate, ICRC.
const wireOverhead = 18 + 20 + 8 + 12 + 8 + 4 + 4

// OpenMulticast joins the groups.
func OpenMulticast(d *Device, cfg McastConfig) (*Multicast, error) {
	limit := d.MaxChunk(cfg.Sums)
	if cfg.Chunk == 0 {
		cfg.Chunk = limit
	}
	if cfg.TTL == 0 {
		cfg.TTL = 16
	}
	// A datagram that does not fit the MTU completes without an error and never arrives.
	if cfg.Chunk < 1 || cfg.Chunk > limit {
		return nil, fmt.Errorf("verbs: %v: chunks of %d bytes: at most %d fit its MTU of %d", d, cfg.Chunk, limit, d.MTU())
	}
	slots := ringSlots
	if cfg.ReceiveBuffer > 0 {
		slots = cfg.ReceiveBuffer / (grhSize + header(cfg.Sums) + cfg.Chunk)
	}
	slots = min(max(slots, minSlots), int(d.attr.max_srq_wr), int(d.attr.max_cqe))
	if slots < minSlots || d.attr.max_sge < 2 || d.attr.max_qp_wr < Batch {
		return nil, fmt.Errorf("verbs: %v has shared receive queues of %d, send queues of %d, and gathers "+
			"from %d places: %d, %d and 2 are needed",
			d, d.attr.max_srq_wr, d.attr.max_qp_wr, d.attr.max_sge, minSlots, Batch)
	}
	d.retain()
	m := &Multicast{dev: d, cfg: cfg}
	for _, g := range cfg.Groups {
		if err := m.open(slots, g); err != nil {
			_ = m.Close()
			return nil, err
		}
	}
	room := slots - slots/8
	if m.subs[0].base.echo {
		room = slots / 2 // this rank's own datagrams occupy slots too, for a moment
	}
	m.caps = fabric.Capabilities{
		Chunk: cfg.Chunk, Batch: min(Batch, max(1, room/4)), Room: room, Overhead: wireOverhead + header(cfg.Sums),
		Header: header(cfg.Sums) + 4, // with the immediate
	}
	if cfg.Derive != nil {
		m.caps.Groups = m
	}
	return m, nil
}

// open opens one subgroup.
func (m *Multicast) open(slots int, addr netip.Addr) (err error) {
	d, head := m.dev, header(m.cfg.Sums)
	s := &sender{dev: d, slots: sendSlots{head: head, chunk: m.cfg.Chunk}, comms: map[uint32]*udQP{}}
	s.depth = min(maxWindow, int(d.attr.max_qp_wr)/Batch, int(d.attr.max_cqe)/Batch)
	s.receiver = &receiver{dev: d, head: head, mend: s.mend}
	m.subs = append(m.subs, s)
	if err := s.open(); err != nil {
		return err
	}
	if err := s.receiver.open(slots); err != nil {
		return err
	}
	s.base, err = m.join(s, addr)
	return err
}

// Capabilities are the limits of the device and of the configuration.
func (m *Multicast) Capabilities() fabric.Capabilities { return m.caps }

// Subgroups is the number of groups.
func (m *Multicast) Subgroups() int { return len(m.cfg.Groups) }

// Streams is the same: a subgroup has one stream, because each queue pair takes memory of the card.
func (m *Multicast) Streams() int { return m.Subgroups() }

// Sender sends to a subgroup.
func (m *Multicast) Sender(sub int) fabric.Sender { return m.subs[sub] }

// Receiver receives the datagrams of other ranks from a subgroup.
func (m *Multicast) Receiver(sub int) fabric.Receiver { return m.subs[sub].receiver }

// Close makes Receive and Send return fabric.ErrClosed, waits until they no longer use memory of the
// caller, and leaves the groups. A Sink must not call it.
func (m *Multicast) Close() error {
	m.once.Do(func() {
		m.mu.Lock()
		for _, s := range m.subs {
			s.receiver.stop()
			s.close()
			s.receiver.free()
		}
		m.dev.release()
	})
	return nil
}
