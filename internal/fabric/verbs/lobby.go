//go:build verbs

package verbs

// #include "shim.h"
import "C"

import (
	"encoding/binary"
	"math/rand/v2"
	"sync"
)

// lobby is the queue pair by which ranks introduce themselves to each other. An RC queue pair connects two ranks, and
// each has to know the number of the other's. With a queue pair for every pair of ranks, cards would grow with the
// number of ranks, and so would the memory of each rank. A rank therefore has one UD queue pair, whose number is in
// its card, and makes an RC queue pair for a peer when one of the two has something to send (link.go).
//
// Introductions are datagrams. They may be lost, and ranks repeat them.
type lobby struct {
	r     *RC
	qp    *C.struct_ibv_qp
	srq   *C.struct_ibv_srq
	reg   *region
	mem   []byte // receive slots, then send slots
	ring  ring
	qkey  uint32
	token uint64 // known to all ranks of the job from the card, and to no process outside of it

	mu   sync.Mutex
	free []uint32 // send slots
	lose int      // introductions to lose, for tests
}

const (
	lobbyRecvs = 256
	lobbySends = 64
	lobbySlot  = 128
	idLobby    = 1 << 62 // in the id of a request; no rank has that bit
)

// introduction tells a peer the number of this rank's queue pair for it.
type introduction struct {
	token uint64 // of the receiver's card
	from  uint32 // rank
	qp    uint32
	known bool // the sender has connected its queue pair to the receiver's
	asks  bool // the sender waits for an introduction
	left  bool // the sender wants nothing from the receiver any more; there is no queue pair
}

const introductionSize = 20

func (i *introduction) put(b []byte) {
	le := binary.LittleEndian
	le.PutUint64(b, i.token)
	le.PutUint32(b[8:], i.from)
	le.PutUint32(b[12:], i.qp)
	var flags uint32
	for bit, set := range []bool{i.known, i.asks, i.left} {
		if set {
			flags |= 1 << bit
		}
	}
	le.PutUint32(b[16:], flags)
}

// parseIntroduction decodes a datagram without its first grhSize bytes.
func parseIntroduction(b []byte) (i introduction, ok bool) {
	if len(b) != introductionSize {
		return i, false
	}
	le := binary.LittleEndian
	flags := le.Uint32(b[16:])
	return introduction{
		token: le.Uint64(b), from: le.Uint32(b[8:]), qp: le.Uint32(b[12:]),
		known: flags&1 != 0, asks: flags&2 != 0, left: flags&4 != 0,
	}, flags < 8
}

func (l *lobby) open(r *RC) (err error) {
	l.r, l.qkey, l.token = r, rand.Uint32()&(1<<31-1), rand.Uint64() // the top bit of keys marks privileged ones
	d := r.dev
	if l.mem, l.reg, err = d.mem.allocBy(d.mem.register, (lobbyRecvs+lobbySends)*lobbySlot, false); err != nil {
		return err
	}
	if l.srq, err = C.ac_srq(d.pd, lobbyRecvs); l.srq == nil {
		return d.errno("create a shared receive queue", err)
	}
	var echo C.int
	rc := C.ac_ud_qp(d.pd, r.cq.cq, r.cq.cq, l.srq, lobbySends, C.int(d.port), C.uint32_t(l.qkey), &echo, &l.qp)
	if rc != 0 {
		return d.failed("create a UD queue pair", int(rc))
	}
	l.ring = ring{base: cu64(address(l.mem)), tag: idRecv | idLobby, stride: lobbySlot, key: cu32(l.reg.lkey)}
	if rc := postRecv(nil, l.srq, &l.ring, numbers(lobbyRecvs)); rc != 0 {
		return d.failed("post receives", rc)
	}
	l.free = numbers(lobbySends)
	return nil
}

// send sends an introduction, unless too many are under way.
func (l *lobby) send(i introduction, ah *C.struct_ibv_ah, qp, qkey uint32) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lose > 0 {
		l.lose--
		return
	}
	if len(l.free) == 0 {
		return
	}
	slot := l.free[len(l.free)-1]
	b := l.mem[(lobbyRecvs+int(slot))*lobbySlot:][:introductionSize]
	i.put(b)
	q := request{
		id: cu64(idLobby | uint64(slot)), op: opSend, addr0: cu64(address(b)), len0: introductionSize,
		key0: cu32(l.reg.lkey), signalled: 1,
	}
	var took C.int
	if C.ac_post(l.qp, &q, 1, ah, cu32(qp), cu32(qkey), &took) == 0 {
		l.free = l.free[:len(l.free)-1]
	}
}

// completed handles a completion of the lobby.
func (l *lobby) completed(d *completion) {
	slot, status := uint32(d.id), Status(d.status)
	if uint64(d.id)&idRecv == 0 {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.free = append(l.free, slot)
		if status != StatusSuccess && status != StatusFlush {
			l.r.log.Debug("an introduction could not be sent", "status", status)
			C.ac_ud_reset(l.qp, C.int(l.r.dev.port), C.uint32_t(l.qkey))
		}
		return
	}
	if status != StatusSuccess {
		return
	}
	b := l.mem[int(slot)*lobbySlot:][:min(int(d.len), lobbySlot)]
	if len(b) > grhSize {
		if i, ok := parseIntroduction(b[grhSize:]); ok {
			l.r.introduced(i)
		}
	}
	if rc := postRecv(nil, l.srq, &l.ring, []uint32{slot}); rc != 0 {
		l.r.log.Debug("the lobby has one slot less", "err", l.r.dev.failed("post receives", rc))
	}
}

// introduced hands an introduction to its peer. Datagrams of other senders are expected, and dropped.
func (r *RC) introduced(i introduction) {
	if i.token != r.lobby.token || uint64(i.from) >= uint64(len(r.peers)) || r.peers[i.from] == nil {
		return
	}
	p := r.peers[i.from]
	p.mu.Lock()
	defer p.unlock()
	p.meet(i)
}

// destroy frees everything that open made, as far as it did. No completions are polled any more.
func (l *lobby) destroy(m *memory) {
	if l.qp != nil {
		C.ibv_destroy_qp(l.qp)
	}
	if l.srq != nil {
		C.ibv_destroy_srq(l.srq)
	}
	m.unregister(l.reg)
}
