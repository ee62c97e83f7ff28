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
		MTU: uint32(r.dev.attr.mtu),
		PSN: r.psn, Slots: r.recvSlots, Addr: r.beacon.addr, RKey: r.beacon.rkey, QPs: make([]uint32, r.size),
	}
	for i, p := range r.peers {
		if p != nil {
			c.QPs[i] = p.qpn
		}
	}
	return c
}

// Connect connects the queue pairs to all peers.
func (r *RC) Connect(cards []*Card) error {
	d := r.dev
	for rank, p := range r.peers {
		if p == nil {
			continue
		}
		c := cards[rank]
		switch {
		case c == nil || len(c.QPs) != r.size:
			return fmt.Errorf("rank %d gave no address of verbs: use the same fabric on all ranks", rank)
		case c.Link != uint32(d.attr.link):
			return fmt.Errorf("rank %d is on another kind of network than we are (InfiniBand and RoCE): name "+
				"a device with ALLCAST_DEVICE", rank)
		}
		to := C.struct_ac_peer{
			lid: C.uint32_t(c.LID), qp: C.uint32_t(c.QPs[r.rank]), psn: C.uint32_t(c.PSN),
			mtu: C.uint32_t(min(c.MTU, uint32(d.attr.mtu))),
		}
		gid, err := hex.DecodeString(c.GID)
		if err != nil || len(gid) != len(to.gid) {
			return fmt.Errorf("rank %d sent an invalid GID %q", rank, c.GID)
		}
		for i := range gid {
			to.gid[i] = C.uint8_t(gid[i])
		}
		p.credit.Open(r.recvSlots, c.Slots)
		p.beacon, p.beaconKey = c.Addr, c.RKey
		in, out := min(maxReads, d.attr.rd_atom), min(maxReads, d.attr.init_rd_atom)
		p.maxReads = int(out)
		if rc := C.ac_rc_connect(p.qp, &to, C.int(d.port), C.int(d.attr.link), C.int(d.gid.index), C.uint32_t(r.psn),
			C.int(out), C.int(in), linkTimeout, linkRetries); rc != 0 {
			return p.fail("connect", int(rc))
		}
	}
	return nil
}
