//go:build verbs

package verbs

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/allcast/allcast/internal/fabric"
	"github.com/allcast/allcast/internal/fabric/session"
)

// loop handles completions until Close.
func (r *RC) loop() {
	for {
		switch n := r.cq.poll(true); {
		case n < 0:
			r.fail(r.dev.failed("poll", n))
			return
		case n > 0:
			r.take(n)
		default:
			if err := r.cq.wait(); err != nil {
				if !errors.Is(err, fabric.ErrClosed) {
					r.fail(err)
				}
				return
			}
		}
	}
}

// watch probes silent peers. An operation may wait for a rank to which nothing is sent, and its death
// must still be detected soon.
func (r *RC) watch() {
	tick := time.NewTicker(aliveEvery)
	defer tick.Stop()
	for {
		select {
		case <-r.quit:
			return
		case <-tick.C:
		}
		for p := range r.others {
			p.mu.Lock()
			p.alive()
			p.unlock()
		}
	}
}

// alive reads the beacon of a silent peer. The read needs neither credit nor the peer's processor, and
// fails if the peer's queue pair is gone. A read of 0 bytes would do, but Soft-RoCE refuses to repeat
// one that was lost. p.mu is held.
func (p *peer) alive() {
	silent := p.life.State() == session.Open && p.used && !p.heard && len(p.requests.flying) == 0
	p.heard = false
	if silent {
		mine := p.r.beacon
		p.requests.add(request{
			op: opRead, addr0: cu64(mine.addr + beaconSize), len0: beaconSize, key0: cu32(mine.lkey),
			remote: cu64(p.beacon.addr), rkey: cu32(p.beacon.rkey),
		}, flight{slot: -1})
		p.ringDoorbell()
	}
}

// fail gives up all peers, since completions can no longer be polled.
func (r *RC) fail(err error) {
	for p := range r.others {
		p.failed(err)
	}
}

// take handles n completions. Then it posts the emptied slots of all peers again.
func (r *RC) take(n int) {
	touched := make([]*peer, 0, Batch)
	for i := range n {
		d := &r.cq.done[i]
		if uint64(d.id)&idLobby != 0 {
			r.lobby.completed(d)
			continue
		}
		p := r.peers[uint64(d.id)>>32&idRank]
		if uint64(d.id)&idRecv == 0 {
			p.completed(d)
			continue
		}
		p.received(d)
		if len(touched) == 0 || touched[len(touched)-1] != p {
			touched = append(touched, p)
		}
	}
	for _, p := range touched {
		p.mu.Lock()
		p.postAgain()
		p.unlock()
	}
}

// inbox is the slots for frames of the peer. The loop's goroutine owns it, except repost and held.
type inbox struct {
	ring   ring
	mem    []byte
	repost []uint32 // emptied slots
	held   int      // parts that the handler has not released
	order  session.Order
	part   []byte // frames of a part of a piece; its capacity is the size of the part
}

// received handles the frame in one slot.
func (p *peer) received(d *completion) {
	i := uint32(d.id)
	if status := Status(d.status); status != StatusSuccess {
		if status != StatusFlush {
			p.failed(p.fail("receive", 0).with(d))
		}
		return
	}
	m := p.in.mem[int(i)*session.SlotSize:][:min(int(d.len), session.SlotSize)]
	p.recvd.Add(uint64(len(m)))
	f, payload, err := session.ParseSlot(m)
	p.mu.Lock()
	p.used, p.heard = true, true
	if p.link.stage == halfway {
		p.linkUp()
	}
	p.in.repost = append(p.in.repost, i)
	if err == nil {
		p.out.credit.Received(f.Grant)
	}
	// From a peer that is leaving, only frames matter that an orderly end needs.
	quiet := p.life.State() != session.Open && f.Kind != session.Goodbye && f.Kind != session.Revoke &&
		f.Kind != session.Checked
	p.unlock()
	if err == nil && !quiet {
		err = p.frame(&f, payload)
	}
	if err != nil {
		p.failed(fmt.Errorf("%w: %w", errProtocol, err))
	}
}

// frame handles a frame.
func (p *peer) frame(f *session.Frame, payload []byte) error {
	switch f.Kind {
	case session.Message:
		p.r.h.Message(p.rank, payload)
		return nil
	case session.Data:
		return p.data(f, payload)
	case session.Ask:
		p.answer(f.Op)
		return nil
	case session.Revoked:
		p.r.revoked(p, f.Op)
		return nil
	}
	p.mu.Lock()
	defer p.unlock()
	switch f.Kind {
	case session.Here:
		p.here(f)
	case session.Check:
		p.control(session.Frame{Kind: session.Checked, Op: f.Op, ID: f.ID, No: !p.r.registered(f.Op)})
	case session.Checked:
		p.checked(f)
	case session.Revoke:
		p.revoke(f.Op)
	case session.Goodbye:
		p.heardGoodbye()
	}
	return nil
}

// postAgain posts emptied slots again, and sends a Credit frame if the peer may be waiting for them.
// p.mu is held.
func (p *peer) postAgain() {
	if p.life.State() == session.Gone || p.in.held >= maxHeld || len(p.in.repost) == 0 {
		return
	}
	if rc := postRecv(p.qp, nil, &p.in.ring, p.in.repost); rc != 0 {
		p.lose(p.fail("post receives", rc))
		return
	}
	p.out.credit.Posted(len(p.in.repost))
	p.in.repost = p.in.repost[:0]
	p.pump()
	o := &p.out
	if p.life.State() != session.Gone && o.credit.Untold() >= p.r.recvSlots/2 &&
		(len(o.queue) == 0 || o.queue[0].f.Kind != session.Credit) {
		// In front of the queue: both sides may be waiting for credit.
		o.queue = slices.Insert(o.queue, 0, &item{f: session.Frame{Kind: session.Credit}})
		p.pump()
	}
}
