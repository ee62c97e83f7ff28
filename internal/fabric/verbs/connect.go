//go:build verbs

package verbs

// #include "shim.h"
import "C"

import (
	"encoding/hex"
	"fmt"
)

// A Card is what peers need to connect to a rank. Ranks exchange cards in the rendezvous. Its size does not depend on
// the number of ranks.
type Card struct {
	Link  uint32 `json:"k"`
	LID   uint32 `json:"l,omitempty"`
	GID   string `json:"g"`
	MTU   uint32 `json:"m"` // code of the verbs
	PSN   uint32 `json:"p"`
	Slots int    `json:"s"`
	QP    uint32 `json:"q"` // of the lobby
	QKey  uint32 `json:"y"` // of the lobby
	Token uint64 `json:"t"` // of the lobby
	Addr  uint64 `json:"a"` // address of the beacon
	RKey  uint32 `json:"r"` // key of the beacon
}

// Card returns the card of this rank.
func (r *RC) Card() *Card {
	raw := goGID(r.dev.gid.raw).As16()
	return &Card{
		Link: uint32(r.dev.attr.link), LID: uint32(r.dev.attr.lid), GID: hex.EncodeToString(raw[:]),
		MTU: uint32(r.dev.attr.mtu), PSN: r.psn, Slots: r.recvSlots,
		QP: uint32(r.lobby.qp.qp_num), QKey: r.lobby.qkey, Token: r.lobby.token,
		Addr: r.beacon.addr, RKey: r.beacon.rkey,
	}
}

// Introduce gives this rank the cards of all ranks, by rank. Peers can be connected to afterwards.
func (r *RC) Introduce(cards []*Card) error {
	if len(cards) != len(r.peers) {
		return fmt.Errorf("there are %d cards of %d ranks", len(cards), len(r.peers))
	}
	for p := range r.others {
		c := cards[p.rank]
		switch {
		case c == nil:
			return fmt.Errorf("rank %d gave no address of verbs: use the same fabric on all ranks", p.rank)
		case c.Link != uint32(r.dev.attr.link):
			return fmt.Errorf("rank %d is on another kind of network than we are (InfiniBand and RoCE): name "+
				"a device with ALLCAST_DEVICE", p.rank)
		}
		p.beacon = remoteMemory{c.Addr, c.RKey}
	}
	r.cards = cards
	for p := range r.others {
		if _, err := r.address(p); err != nil {
			return err
		}
	}
	return nil
}

// address returns where a peer is, without the number of a queue pair.
func (r *RC) address(p *peer) (to C.struct_ac_peer, err error) {
	c := r.cards[p.rank]
	gid, err := hex.DecodeString(c.GID)
	if err != nil || len(gid) != 16 {
		return to, fmt.Errorf("rank %d sent an invalid GID %q", p.rank, c.GID)
	}
	return C.struct_ac_peer{
		gid: cGID([16]byte(gid)), lid: cu32(c.LID), psn: cu32(c.PSN), mtu: min(cu32(c.MTU), r.dev.attr.mtu),
	}, nil
}

// connect connects the queue pair of a peer to the peer's. p.mu is held.
func (r *RC) connect(p *peer, qp uint32) error {
	to, err := r.address(p)
	if err != nil {
		return err
	}
	d := r.dev
	to.qp = cu32(qp)
	p.out.credit.Open(r.recvSlots, r.cards[p.rank].Slots)
	in, out := min(maxReads, d.attr.rd_atom), min(maxReads, d.attr.init_rd_atom)
	p.reads.max = int(out)
	if rc := C.ac_rc_connect(p.qp, &to, C.int(d.port), C.int(d.attr.link), C.int(d.gid.index), C.uint32_t(r.psn),
		C.int(out), C.int(in), linkTimeout, linkRetries); rc != 0 {
		return p.fail("connect", int(rc))
	}
	return nil
}
