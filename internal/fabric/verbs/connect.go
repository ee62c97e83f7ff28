//go:build verbs

package verbs

// #include "shim.h"
import "C"

import (
	"encoding/hex"
	"fmt"
)

// A Card is what peers need to connect to a rank. Ranks exchange cards in the rendezvous.
type Card struct {
	Link  uint32   `json:"k"`
	LID   uint32   `json:"l,omitempty"`
	GID   string   `json:"g"`
	MTU   uint32   `json:"m"` // code of the verbs
	PSN   uint32   `json:"p"`
	Slots int      `json:"s"`
	QPs   []uint32 `json:"q"` // by rank
	Addr  uint64   `json:"a"` // address of the beacon
	RKey  uint32   `json:"r"` // key of the beacon
}

// Card returns the card of this rank.
func (r *RC) Card() *Card {
	raw := goGID(r.dev.gid.raw).As16()
	c := &Card{
		Link: uint32(r.dev.attr.link), LID: uint32(r.dev.attr.lid), GID: hex.EncodeToString(raw[:]),
		MTU: uint32(r.dev.attr.mtu), PSN: r.psn, Slots: r.recvSlots, QPs: make([]uint32, len(r.peers)),
		Addr: r.beacon.addr, RKey: r.beacon.rkey,
	}
	for p := range r.others {
		c.QPs[p.rank] = p.qpn
	}
	return c
}

// Connect connects the queue pairs to all peers.
func (r *RC) Connect(cards []*Card) error {
	d := r.dev
	for p := range r.others {
		c := cards[p.rank]
		switch {
		case c == nil || len(c.QPs) != len(r.peers):
			return fmt.Errorf("rank %d gave no address of verbs: use the same fabric on all ranks", p.rank)
		case c.Link != uint32(d.attr.link):
			return fmt.Errorf("rank %d is on another kind of network than we are (InfiniBand and RoCE): name "+
				"a device with ALLCAST_DEVICE", p.rank)
		}
		gid, err := hex.DecodeString(c.GID)
		if err != nil || len(gid) != 16 {
			return fmt.Errorf("rank %d sent an invalid GID %q", p.rank, c.GID)
		}
		to := C.struct_ac_peer{
			gid: cGID([16]byte(gid)), lid: cu32(c.LID), qp: cu32(c.QPs[r.rank]), psn: cu32(c.PSN),
			mtu: min(cu32(c.MTU), d.attr.mtu),
		}
		p.out.credit.Open(r.recvSlots, c.Slots)
		p.beacon = remoteMemory{c.Addr, c.RKey}
		in, out := min(maxReads, d.attr.rd_atom), min(maxReads, d.attr.init_rd_atom)
		p.reads.max = int(out)
		if rc := C.ac_rc_connect(p.qp, &to, C.int(d.port), C.int(d.attr.link), C.int(d.gid.index), C.uint32_t(r.psn),
			C.int(out), C.int(in), linkTimeout, linkRetries); rc != 0 {
			return p.fail("connect", int(rc))
		}
	}
	return nil
}
