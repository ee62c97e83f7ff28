//go:build verbs

package verbs

// #include "shim.h"
import "C"

import (
	"fmt"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/allcast/allcast/internal/fabric"
	"github.com/allcast/allcast/internal/fabric/session"
	"github.com/allcast/allcast/internal/wire"
)

const _ = uint(session.SlotPayload - wire.MaxMsg) // every message of the protocol fits

// peer is another rank.
//
// Requests complete in order, and only the last one of each doorbell is signalled. Its completion is
// also that of all requests before it.
type peer struct {
	r    *RC
	rank int
	qp   *C.struct_ibv_qp
	qpn  uint32
	ring ring   // receive slots
	in   []byte // their memory
	out  []byte // memory of the send slots

	beacon      uint64 // address of its beacon
	beaconKey   uint32
	sent, recvd atomic.Uint64

	mu    sync.Mutex
	life  session.Peer
	used  bool // there was traffic
	heard bool // something arrived since the last probe
	timer *time.Timer

	// Sending.
	queue    []*item
	answers  int      // frames in queue that answer frames of the peer
	flying   []flight // requests in chain, or posted
	chain    []request
	seq      uint32
	free     []uint32 // send slots
	credit   session.CreditAccount
	reading  int // RDMA READs under way
	maxReads int
	notes    notes

	// Receiving. Owned by the loop's goroutine, except repost and held.
	repost []uint32
	held   int
	order  session.Order
	part   part

	// Reads of the peer's memory: read.go.
	remotes map[fabric.OpKey]*remote
	ready   []*directRead // reads that can be posted
}

// item is a frame or a piece that waits for room.
type item struct {
	f       session.Frame
	payload []byte // copy of a message
	put     *put
}

// flight is a request in flight.
type flight struct {
	seq  uint32
	slot int32 // send slot; -1: none
	put  *put
	read *directRead
}

func newPeer(r *RC, rank int, mem []byte) *peer {
	p := &peer{
		r: r, rank: rank, in: mem[:r.recvSlots*session.SlotSize], out: mem[r.recvSlots*session.SlotSize:],
		remotes: map[fabric.OpKey]*remote{},
	}
	p.ring = ring{
		base: cu64(address(p.in)), tag: idRecv | cu64(uint64(rank)<<32), stride: session.SlotSize,
		key: cu32(r.reg.lkey),
	}
	for i := range r.recvSlots {
		p.repost = append(p.repost, uint32(i))
	}
	for i := range r.sendSlots {
		p.free = append(p.free, uint32(i))
	}
	return p
}

// The id of a request: a bit for receives, the rank, and a slot or a number.
const (
	idRecv = 1 << 63
	idRank = 1<<31 - 1
)

func (p *peer) fail(op string, rc int) error {
	return &Error{Op: op, Device: p.r.dev.String(), QP: p.qpn, Peer: p.rank, Errno: syscall.Errno(-rc)}
}

// message sends a message, or with more delays it until the next one.
func (p *peer) message(msg []byte, more bool) {
	if len(msg) > session.SlotPayload {
		panic("fabric/verbs: the message is too long")
	}
	p.mu.Lock()
	if p.life.State() == session.Open {
		f := session.Frame{Kind: session.Message, N: len(msg)}
		if len(p.queue) > 0 || !p.room(creditReserve) {
			p.queue = append(p.queue, &item{f: f, payload: append([]byte(nil), msg...)})
		} else {
			p.encode(&f, msg, nil, nil)
		}
		if !more {
			p.pump()
		}
	}
	p.unlock()
}

// maxAnswers is the largest number of answers that may wait for a peer: half a megabyte. Answers wait
// while the peer has no room, and a correct peer asks little meanwhile. For each operation it asks once
// for the buffer, and then checks at most fabric.MaxReads reads.
const maxAnswers = 4096

// control sends a frame without payload. It gives up a peer that lets too many answers wait. p.mu is held.
func (p *peer) control(f session.Frame) {
	if p.life.State() == session.Gone {
		return
	}
	if f.Kind.Answers() {
		if p.answers == maxAnswers {
			p.lose(fmt.Errorf("%w: it keeps asking while %d answers wait for room", errProtocol, maxAnswers))
			return
		}
		p.answers++
	}
	p.queue = append(p.queue, &item{f: f})
	p.pump()
}

// room reports whether a frame can be posted while keep slots stay free for credit.
func (p *peer) room(keep int) bool {
	return len(p.free) > 0 && len(p.chain) < Batch && p.credit.Room(keep)
}

// encode makes a frame the next request. With a region, the device gathers the payload from the
// user's memory; otherwise encode copies it to the slot. p.mu is held, and there is room.
func (p *peer) encode(f *session.Frame, payload []byte, user *region, of *put) {
	i := p.free[len(p.free)-1]
	p.free = p.free[:len(p.free)-1]
	slot := p.out[int(i)*session.SlotSize:][:session.SlotSize]
	f.N, f.Grant = len(payload), p.credit.Send()
	f.PutSlot(slot)
	q := request{op: opSend, addr0: cu64(address(slot)), len0: session.SlotHeader, key0: cu32(p.r.reg.lkey)}
	if user != nil && len(payload) > 0 {
		q.addr1, q.len1, q.key1 = cu64(address(payload)), cu32(len(payload)), cu32(user.lkey)
	} else {
		q.len0 += cu32(copy(slot[session.SlotHeader:], payload))
	}
	p.used = true
	p.sent.Add(uint64(session.SlotHeader + len(payload)))
	p.add(q, flight{slot: int32(i), put: of})
}

// add makes q the next request.
func (p *peer) add(q request, fl flight) {
	p.seq++
	fl.seq = p.seq
	q.id = cu64(uint64(p.rank)<<32 | uint64(p.seq))
	p.chain = append(p.chain, q)
	p.flying = append(p.flying, fl)
}

// pump posts waiting frames and reads as far as there is room, with one doorbell per Batch. p.mu is
// held.
func (p *peer) pump() {
	for {
		p.fill()
		if len(p.chain) == 0 {
			break
		}
		more := len(p.chain) == Batch
		if !p.ring1() || !more {
			break
		}
	}
	p.settle()
}

func (p *peer) fill() {
	if p.life.State() == session.Gone {
		return
	}
	for len(p.queue) > 0 {
		it := p.queue[0]
		keep := creditReserve
		if it.f.Kind == session.Credit {
			keep = 0
		}
		if !p.room(keep) || it.put != nil && it.put.registering {
			break
		}
		if it.put != nil {
			if !p.encodePut(it.put) {
				continue // the piece has more parts
			}
		} else {
			p.encode(&it.f, it.payload, nil, nil)
		}
		if it.f.Kind.Answers() {
			p.answers--
		}
		p.queue[0] = nil
		p.queue = p.queue[1:]
	}
	if len(p.queue) == 0 {
		p.queue = nil
	}
	p.fillReads()
}

// ring1 posts the chain, and reports whether that succeeded.
func (p *peer) ring1() bool {
	if p.life.State() == session.Gone {
		return false
	}
	p.chain[len(p.chain)-1].signalled = 1
	p.r.doorbells.Add(1)
	rc := post(p.qp, p.chain)
	p.chain = p.chain[:0]
	if rc != 0 {
		p.lose(p.fail("post", rc))
		return false
	}
	return true
}

// completed handles the completion of a send or a read.
func (p *peer) completed(d *completion) {
	p.mu.Lock()
	defer p.unlock()
	seq := uint32(d.id)
	n := 0
	for n < len(p.flying) && int32(seq-p.flying[n].seq) >= 0 {
		n++
	}
	status := Status(d.status)
	done := p.flying[:n]
	if p.flying = p.flying[n:]; len(p.flying) == 0 {
		p.flying = nil
	}
	for i, fl := range done {
		if fl.slot >= 0 {
			p.free = append(p.free, uint32(fl.slot))
		}
		ok := status == StatusSuccess || i < n-1
		switch {
		case fl.put != nil:
			fl.put.flying--
			p.ended(fl.put)
		case fl.read != nil:
			p.readEnded(fl.read, ok)
		}
	}
	if status != StatusSuccess && p.life.State() != session.Gone {
		p.lose(&Error{
			Op: "send", Device: p.r.dev.String(), QP: p.qpn, Peer: p.rank, Status: status,
			Vendor: uint32(d.vendor),
		})
		return
	}
	p.pump()
}

// waiting reports whether frames or reads are queued or in flight.
func (p *peer) waiting() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.life.State() != session.Gone && (len(p.queue) > 0 || len(p.flying) > 0)
}
