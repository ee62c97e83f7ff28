package p2p_test

import (
	"testing"

	"github.com/allcast/allcast/internal/p2p"
	"github.com/allcast/allcast/internal/step"
	"github.com/allcast/allcast/internal/wire"
)

// mailSide is one side of a message of 10 bytes between ranks 1 and 4 of 6.
type mailSide struct {
	t    *testing.T
	mail *p2p.Mail
}

func newMailSide(t *testing.T, sends, eager bool) mailSide {
	t.Helper()
	rank, peer := 4, 1
	if sends {
		rank, peer = peer, rank
	}
	offer := wire.Msg{Kind: wire.MsgOffer, Comm: 3, Seq: wire.MailKey(1, 7), Tag: 5, Bytes: 10, Flag: eager}
	return mailSide{t, p2p.NewMail(p2p.MailPlan(rank, 6, peer, 10, sends), offer)}
}

// on handles an event and checks the actions that it causes.
func (s mailSide) on(what string, ev step.Event, want ...step.ActionKind) []step.Action {
	s.t.Helper()
	return s.check(what, s.mail.Step(9, ev, nil), want)
}

func (s mailSide) check(what string, acts []step.Action, want []step.ActionKind) []step.Action {
	s.t.Helper()
	if len(acts) != len(want) {
		s.t.Fatalf("%s: %+v, want %v", what, acts, want)
	}
	for i, a := range acts {
		if a.Kind != want[i] {
			s.t.Fatalf("%s: %+v, want %v", what, acts, want)
		}
	}
	return acts
}

func message(kind wire.MsgKind) step.Event {
	return step.Event{Kind: step.EvMsg, From: 4, Msg: &wire.Msg{Kind: kind}}
}

var (
	begin = step.Event{Kind: step.EvStart}
	left  = step.Event{Kind: step.EvSent, N: 1}
)

// A sender offers its message, and sends the data when the receiver asks for it.
func TestMailSender(t *testing.T) {
	s := newMailSide(t, true, false)
	offer := s.on("start", begin, step.ActSend)[0]
	if offer.To != 4 || offer.Msg.Kind != wire.MsgOffer || offer.Msg.Tag != 5 || offer.Msg.Bytes != 10 || offer.Msg.Flag {
		t.Errorf("the offer is %+v", offer)
	}
	if s.mail.Asked() || s.mail.Eager() || s.mail.WaitingOn() != 4 || s.mail.Missing(nil) != "a receive on rank 4" {
		t.Errorf("it waits for %d, and misses %s", s.mail.WaitingOn(), s.mail.Missing(nil))
	}
	s.on("nothing has left", left)
	s.on("a message of something else", message(wire.MsgReady))
	put := s.on("accepted", message(wire.MsgAccept), step.ActPut)[0]
	if put.To != 4 || put.Len != 10 || put.Off != 0 || put.PSN != 0 {
		t.Errorf("the data is %+v", put)
	}
	if !s.mail.Asked() || s.mail.WaitingOn() != 1 || s.mail.Missing(nil) != "nothing" {
		t.Errorf("it waits for %d, and misses %s", s.mail.WaitingOn(), s.mail.Missing(nil))
	}
	s.on("accepted again", message(wire.MsgAccept))
	s.on("too late to discard", message(wire.MsgDiscard))
	s.on("the data has left", left, step.ActComplete, step.ActClosed)
	s.on("accepted after the end", message(wire.MsgAccept))
	if s.mail.Phase() != step.Closed || s.mail.Times().Done != 9 {
		t.Errorf("phase %v, %+v", s.mail.Phase(), s.mail.Times())
	}
}

// A sender whose message does not fit completes without sending it.
func TestMailDiscarded(t *testing.T) {
	s := newMailSide(t, true, false)
	s.on("start", begin, step.ActSend)
	s.on("discarded", message(wire.MsgDiscard), step.ActComplete, step.ActClosed)
	s.on("accepted after the end", message(wire.MsgAccept))
}

// The data of an eager message follows the offer. The receiver cannot refuse it.
func TestMailEagerSender(t *testing.T) {
	s := newMailSide(t, true, true)
	if acts := s.on("start", begin, step.ActSend, step.ActPut); !acts[0].Msg.Flag || !s.mail.Eager() {
		t.Errorf("the offer is not eager: %+v", acts[0].Msg)
	}
	s.on("discarded", message(wire.MsgDiscard))
	s.on("accepted", message(wire.MsgAccept))
	s.on("the data has left", left, step.ActComplete, step.ActClosed)
}

// A receiver asks for the data, unless it is on its way, and completes when it is in place.
func TestMailReceiver(t *testing.T) {
	for _, eager := range []bool{false, true} {
		s := newMailSide(t, false, eager)
		if eager {
			s.on("start", begin)
		} else if a := s.on("start", begin, step.ActSend)[0]; a.To != 1 || a.Msg.Kind != wire.MsgAccept ||
			a.Msg.Seq != wire.MailKey(1, 7) || a.Msg.Comm != 3 {
			t.Errorf("the answer is %+v", a)
		}
		if s.mail.WaitingOn() != 1 || s.mail.Missing(nil) != "10 bytes from rank 1" {
			t.Errorf("it waits for %d, and misses %s", s.mail.WaitingOn(), s.mail.Missing(nil))
		}
		s.on("accepted by the sender", message(wire.MsgAccept))
		s.check("not all data", s.mail.Received(9, 0, 1, nil), nil)
		s.check("all data", s.mail.Received(9, 1, 0, nil), []step.ActionKind{step.ActComplete, step.ActClosed})
		s.check("all data again", s.mail.Received(9, 1, 0, nil), nil)
	}
}

// Data may be in place before the start, and a failed transfer does nothing any more.
func TestMailDataBeforeTheStart(t *testing.T) {
	s := newMailSide(t, false, true)
	s.check("early data", s.mail.Received(9, 1, 0, nil), nil)
	s.on("start", begin, step.ActComplete, step.ActClosed)

	s = newMailSide(t, true, false)
	s.on("start", begin, step.ActSend)
	s.mail.Fail()
	s.on("accepted after the failure", message(wire.MsgAccept))
	if s.mail.Phase() != step.Failed || s.mail.Timer() != step.Never {
		t.Errorf("phase %v", s.mail.Phase())
	}
}
