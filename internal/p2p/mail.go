package p2p

import (
	"fmt"

	"github.com/allcast/allcast/internal/step"
	"github.com/allcast/allcast/internal/wire"
)

// A Mail moves one message of a Send and a Recv on one rank. The sender offers the message and sends its
// data when the receiver accepts, or at once if it has credit for that. Package node matches offers with
// receives, and starts the receiver's Mail at the match.
type Mail struct {
	lifecycle
	plan   *Plan
	peer   int
	offer  wire.Msg
	sends  bool
	asked  bool // whether the data may go
	put    bool // whether it was handed over
	placed bool // receiver: whether the data is in place
}

// MailPlan returns the plan of a message: one piece to or from a peer.
func MailPlan(rank, size, peer int, bytes int64, sends bool) *Plan {
	m := &struct { // one allocation: every message has a plan of its own
		plan   Plan
		send   [1]Send
		recv   [1]Recv
		peers  [1]contact
		recvs  [1]int32
		byRank [1]int32
	}{
		plan: Plan{Kind: wire.Recv, Rank: rank, Size: size, Bytes: bytes, Output: bytes},
	}
	p := &m.plan
	m.peers[0].rank = int32(peer)
	p.peers, p.byRank = m.peers[:], m.byRank[:]
	if sends {
		p.Kind = wire.Send
		m.send[0] = Send{Len: bytes, To: int32(peer)}
		p.Sends = m.send[:]
	} else {
		m.recv[0] = Recv{Len: bytes, From: int32(peer)}
		p.Recvs, p.senders, m.peers[0].recvs = m.recv[:], 1, m.recvs[:]
	}
	return p
}

// NewMail returns one side of the message that offer describes.
func NewMail(p *Plan, offer wire.Msg) *Mail {
	return &Mail{plan: p, offer: offer, sends: p.Kind == wire.Send, asked: offer.Flag, peer: int(p.peers[0].rank)}
}

// Step handles an event and appends the resulting actions to out.
func (m *Mail) Step(now step.Time, ev step.Event, out []step.Action) []step.Action {
	if m.phase >= step.Closed {
		return out
	}
	switch ev.Kind {
	case step.EvStart:
		m.start(now)
		if m.sends {
			out = append(out, step.Action{Kind: step.ActSend, To: m.peer, Msg: m.offer})
		} else if !m.offer.Flag {
			out = append(out, m.reply(wire.MsgAccept))
		}
	case step.EvMsg:
		switch {
		case m.sends && ev.Msg.Kind == wire.MsgAccept:
			m.asked = true
		case m.sends && !m.asked && ev.Msg.Kind == wire.MsgDiscard:
			return m.complete(now, out)
		}
	case step.EvSent:
		if m.put {
			return m.complete(now, out)
		}
	}
	if m.phase == step.Transfer && m.sends && m.asked && !m.put {
		m.put = true
		out = append(out, step.Action{Kind: step.ActPut, To: m.peer, Len: m.plan.Bytes})
	}
	if m.phase == step.Transfer && m.placed {
		out = m.complete(now, out)
	}
	return out
}

// Eager reports whether the data follows the offer at once.
func (m *Mail) Eager() bool { return m.offer.Flag }

// Asked reports whether the receiver has accepted the message, or need not.
func (m *Mail) Asked() bool { return m.asked }

// Received reports that the data is in place.
func (m *Mail) Received(now step.Time, _, left int, out []step.Action) []step.Action {
	m.placed = m.placed || left == 0
	if m.phase == step.Transfer && m.placed {
		out = m.complete(now, out)
	}
	return out
}

func (m *Mail) reply(kind wire.MsgKind) step.Action {
	return step.Action{Kind: step.ActSend, To: m.peer, Msg: wire.Msg{Kind: kind, Comm: m.offer.Comm, Seq: m.offer.Seq}}
}

// Awaits reports whether the Mail cannot end without the peer's answer to its offer.
func (m *Mail) Awaits(rank int) bool {
	return rank == m.peer && m.sends && !m.asked && m.phase == step.Transfer
}

// WaitingOn returns the rank that must act next.
func (m *Mail) WaitingOn() int {
	if m.put {
		return m.plan.Rank
	}
	return m.peer
}

// Missing describes the missing part for error messages.
func (m *Mail) Missing(name step.Namer) string {
	switch {
	case m.sends && !m.asked:
		return fmt.Sprintf("a receive on %s", name.Name(m.peer))
	case m.sends:
		return "nothing"
	}
	return fmt.Sprintf("%d bytes from %s", m.plan.Bytes, name.Name(m.peer))
}
