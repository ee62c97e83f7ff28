//go:build verbs

package verbs

// #include "shim.h"
import "C"

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/allcast/allcast/internal/fabric"
	"github.com/allcast/allcast/internal/fabric/session"
	"github.com/allcast/allcast/internal/wire"
)

const _ = uint(session.SlotPayload - wire.MaxMsg) // every message of the protocol fits

// peer is another rank. Files: link.go makes the connection, peer.go sends frames, put.go pieces, and read.go
// reads its memory; loop.go receives; leave.go ends the connection.
type peer struct {
	r           *RC
	rank        int
	qp          *C.struct_ibv_qp
	qpn         uint32
	beacon      remoteMemory
	sent, recvd atomic.Uint64 // bytes

	mu       sync.Mutex
	life     session.Peer
	link     link
	used     bool // there was traffic
	heard    bool // something arrived since the last probe
	timer    *time.Timer
	out      outbox
	requests requests
	in       inbox
	reads    reads
	notes    notes
}

// remoteMemory is memory of a peer that this rank may read.
type remoteMemory struct {
	addr uint64
	rkey uint32
}

// outbox is the frames that wait for room, and the room for them.
type outbox struct {
	mem     []byte   // memory of the send slots
	free    []uint32 // send slots
	credit  session.CreditAccount
	queue   []*item
	answers int // frames in queue that answer frames of the peer
}

// item is a frame or a piece that waits for room.
type item struct {
	f       session.Frame
	payload []byte // copy of a message
	put     *put
}

// pop removes the first item.
func (o *outbox) pop() {
	if o.queue[0].f.Kind.Answers() {
		o.answers--
	}
	o.queue[0] = nil
	if o.queue = o.queue[1:]; len(o.queue) == 0 {
		o.queue = nil
	}
}

// requests are the requests to the device. They complete in order, and only the last one of each doorbell
// is signalled. Its completion is also that of all requests before it.
type requests struct {
	tag    uint64    // upper half of the requests' ids
	seq    uint32    // number of the last request
	chain  []request // requests for the next doorbell
	flying []flight  // requests in chain, or posted
}

// flight is a request in flight.
type flight struct {
	seq  uint32
	slot int32 // send slot; -1: none
	put  *put
	read *directRead
}

// full reports whether the doorbell must be rung before a request can be added.
func (q *requests) full() bool { return len(q.chain) == Batch }

// add makes r the next request.
func (q *requests) add(r request, fl flight) {
	q.seq++
	fl.seq = q.seq
	r.id = cu64(q.tag | uint64(q.seq))
	q.chain = append(q.chain, r)
	q.flying = append(q.flying, fl)
}

// completed removes the requests that have completed with number seq.
func (q *requests) completed(seq uint32) []flight {
	n := 0
	for n < len(q.flying) && int32(seq-q.flying[n].seq) >= 0 {
		n++
	}
	done := q.flying[:n]
	if q.flying = q.flying[n:]; len(q.flying) == 0 {
		q.flying = nil
	}
	return done
}

func newPeer(r *RC, rank int) *peer {
	p := &peer{r: r, rank: rank}
	p.requests.tag = uint64(rank) << 32
	p.reads.remotes = map[fabric.OpKey]*remote{}
	return p
}

// The id of a request: a bit for receives, the rank, and a slot or a number.
const (
	idRecv = 1 << 63
	idRank = 1<<31 - 1
)

func (p *peer) fail(op string, rc int) *Error { return p.r.dev.failed(op, rc).on(p.qpn, p.rank) }

// message sends a message, or with more delays it until the next one.
func (p *peer) message(msg []byte, more bool) {
	if len(msg) > session.SlotPayload {
		panic("fabric/verbs: the message is too long")
	}
	p.mu.Lock()
	if p.life.State() == session.Open {
		f := session.Frame{Kind: session.Message, N: len(msg)}
		if len(p.out.queue) > 0 || !p.room(creditReserve) {
			p.out.queue = append(p.out.queue, &item{f: f, payload: append([]byte(nil), msg...)})
		} else {
			p.encode(&f, msg, nil)
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
		if p.out.answers == maxAnswers {
			p.lose(fmt.Errorf("%w: it keeps asking while %d answers wait for room", errProtocol, maxAnswers))
			return
		}
		p.out.answers++
	}
	p.out.queue = append(p.out.queue, &item{f: f})
	p.pump()
}

// room reports whether a frame can be posted while keep slots stay free for credit.
func (p *peer) room(keep int) bool {
	return p.link.stage == linked && len(p.out.free) > 0 && !p.requests.full() && p.out.credit.Room(keep)
}

// encode makes a frame the next request. The device gathers the payload of a put from the user's memory;
// with nil, encode copies the payload to the slot. p.mu is held, and there is room.
func (p *peer) encode(f *session.Frame, payload []byte, of *put) {
	o := &p.out
	i := o.free[len(o.free)-1]
	o.free = o.free[:len(o.free)-1]
	slot := o.mem[int(i)*session.SlotSize:][:session.SlotSize]
	f.N, f.Grant = len(payload), o.credit.Send()
	f.PutSlot(slot)
	q := request{op: opSend, addr0: cu64(address(slot)), len0: session.SlotHeader, key0: cu32(p.link.reg.lkey)}
	if of != nil && len(payload) > 0 {
		q.addr1, q.len1, q.key1 = cu64(address(payload)), cu32(len(payload)), cu32(of.user.lkey)
	} else {
		q.len0 += cu32(copy(slot[session.SlotHeader:], payload))
	}
	p.used = true
	p.sent.Add(uint64(session.SlotHeader + len(payload)))
	p.requests.add(q, flight{slot: int32(i), put: of})
}

// pump posts waiting frames and reads as far as there is room, with one doorbell per Batch. p.mu is
// held.
func (p *peer) pump() {
	for more := true; more; {
		p.fill()
		more = p.requests.full()
		if len(p.requests.chain) == 0 || !p.ringDoorbell() {
			break
		}
	}
	if len(p.out.queue) > 0 {
		p.call()
	}
	p.settle()
}

// fill makes requests from waiting frames and reads, as far as there is room.
func (p *peer) fill() {
	if p.life.State() == session.Gone {
		return
	}
	for len(p.out.queue) > 0 {
		it := p.out.queue[0]
		keep := creditReserve
		if it.f.Kind == session.Credit {
			keep = 0
		}
		if !p.room(keep) || it.put != nil && it.put.registering {
			break
		}
		if it.put == nil {
			p.encode(&it.f, it.payload, nil)
		} else if !p.encodePut(it.put) {
			continue // the piece has more parts
		}
		p.out.pop()
	}
	p.fillReads()
}

// ringDoorbell posts the chain, and reports whether that succeeded.
func (p *peer) ringDoorbell() bool {
	if p.life.State() == session.Gone {
		return false
	}
	chain := p.requests.chain
	p.requests.chain = chain[:0]
	chain[len(chain)-1].signalled = 1
	p.r.counters.doorbells.Add(1)
	if rc := post(p.qp, chain); rc != 0 {
		p.lose(p.fail("post", rc))
		return false
	}
	return true
}

// completed handles the completion of a send or a read.
func (p *peer) completed(d *completion) {
	p.mu.Lock()
	defer p.unlock()
	success := Status(d.status) == StatusSuccess
	done := p.requests.completed(uint32(d.id))
	for i, fl := range done {
		if fl.slot >= 0 {
			p.out.free = append(p.out.free, uint32(fl.slot))
		}
		p.landed(&fl, success || i < len(done)-1)
	}
	if !success && p.life.State() != session.Gone {
		p.lose(p.fail("send", 0).with(d))
		return
	}
	p.pump()
}

// landed handles the end of a request. After a failure, destroy follows. p.mu is held.
func (p *peer) landed(fl *flight, ok bool) {
	switch {
	case fl.put != nil:
		fl.put.flying--
		fl.put.cancelled = fl.put.cancelled || !ok
		p.ended(fl.put)
	case fl.read != nil:
		p.readEnded(fl.read, ok)
	}
}

// busy reports whether frames or reads are queued or in flight. p.mu is held.
func (p *peer) busy() bool { return len(p.out.queue) > 0 || len(p.requests.flying) > 0 }

// waiting reports whether frames or reads have not left.
func (p *peer) waiting() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.life.State() != session.Gone && p.busy()
}
