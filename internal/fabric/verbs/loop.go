//go:build verbs

package verbs

import (
	"errors"
	"fmt"
	"time"

	"github.com/allcast/allcast/internal/fabric"
	"github.com/allcast/allcast/internal/fabric/session"
)

// loop handles completions until Close.
func (r *RC) loop() {
	defer close(r.ended)
	for {
		n := poll(r.cq, &r.done)
		switch {
		case n < 0:
			r.fail(r.dev.failed("poll", n))
			return
		case n > 0:
			r.take(n)
		default:
			if _, err := r.ev.wait(); err != nil {
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
		for _, p := range r.peers {
			if p != nil {
				p.mu.Lock()
				p.alive()
				p.unlock()
			}
		}
	}
}

// alive reads the beacon of a silent peer. The read needs neither credit nor the peer's processor, and
// fails if the peer's queue pair is gone. A read of 0 bytes would do, but Soft-RoCE refuses to repeat
// one that was lost. p.mu is held.
func (p *peer) alive() {
	silent := p.life.State() == session.Open && p.used && !p.heard && len(p.flying) == 0
	p.heard = false
	if silent {
		mine := p.r.beacon
		p.add(request{
			op: opRead, addr0: cu64(mine.addr + beaconSize), len0: beaconSize, key0: cu32(mine.lkey),
			remote: cu64(p.beacon), rkey: cu32(p.beaconKey),
		}, flight{slot: -1})
		p.ring1()
	}
}

// fail gives up all peers, since completions can no longer be polled.
func (r *RC) fail(err error) {
	for _, p := range r.peers {
		if p != nil {
			p.mu.Lock()
			p.lose(err)
			p.unlock()
		}
	}
}

func (r *RC) take(n int) {
	for i := range n {
		d := &r.done[i]
		p := r.peers[uint64(d.id)>>32&idRank]
		if uint64(d.id)&idRecv == 0 {
			p.completed(d)
			continue
		}
		p.received(d)
		if len(r.touched) == 0 || r.touched[len(r.touched)-1] != p {
			r.touched = append(r.touched, p)
		}
	}
	for i, p := range r.touched {
		p.mu.Lock()
		p.postAgain()
		p.unlock()
		r.touched[i] = nil
	}
	r.touched = r.touched[:0]
}

// received handles the frame in one slot.
func (p *peer) received(d *completion) {
	i := uint32(d.id)
	if Status(d.status) != StatusSuccess {
		if Status(d.status) != StatusFlush {
			p.mu.Lock()
			p.lose(&Error{
				Op: "receive", Device: p.r.dev.String(), QP: p.qpn, Peer: p.rank, Status: Status(d.status),
				Vendor: uint32(d.vendor),
			})
			p.unlock()
		}
		return
	}
	m := p.in[int(i)*session.SlotSize:][:min(int(d.len), session.SlotSize)]
	p.recvd.Add(uint64(len(m)))
	f, payload, err := session.ParseSlot(m)
	p.mu.Lock()
	p.used, p.heard = true, true
	p.repost = append(p.repost, i)
	if err == nil {
		p.credit.Received(f.Grant)
	}
	quiet := p.life.State() != session.Open
	p.unlock()
	if err == nil && !quiet {
		err = p.frame(&f, payload)
	} else if err == nil {
		p.late(&f)
	}
	if err != nil {
		p.mu.Lock()
		p.lose(fmt.Errorf("%w: %w", errProtocol, err))
		p.unlock()
	}
}

// late handles a frame of a peer that is leaving: only what an orderly end needs.
func (p *peer) late(f *session.Frame) {
	p.mu.Lock()
	defer p.unlock()
	switch f.Kind {
	case session.Goodbye:
		p.life.Goodbye() // it was reported before
		p.settle()
	case session.Revoke:
		p.revoke(f.Op)
	case session.Checked:
		p.checked(f)
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
	if p.life.State() == session.Gone || p.held >= maxHeld || len(p.repost) == 0 {
		return
	}
	if rc := postRecv(p.qp, &p.ring, p.repost); rc != 0 {
		p.lose(p.fail("post receives", rc))
		return
	}
	p.credit.Posted(len(p.repost))
	p.repost = p.repost[:0]
	p.pump()
	if p.life.State() != session.Gone && p.credit.Untold() >= p.r.recvSlots/2 && (len(p.queue) == 0 ||
		p.queue[0].f.Kind != session.Credit) {
		// In front of the queue: both sides may be waiting for credit.
		p.queue = append([]*item{{f: session.Frame{Kind: session.Credit}}}, p.queue...)
		p.pump()
	}
}
