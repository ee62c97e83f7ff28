package p2p

import "github.com/allcast/allcast/internal/protocol"

// life is what all operations of this package have in common: they transfer,
// then they are closed, since nobody needs them afterwards.
type life struct {
	phase protocol.Phase
	times protocol.Times
}

func (l *life) begin(now protocol.Time) {
	l.phase = protocol.Transfer
	l.times.Start, l.times.Barrier = now, now
}

func (l *life) end(now protocol.Time, out []protocol.Action) []protocol.Action {
	l.phase = protocol.Closed
	l.times.Have, l.times.Done = now, now
	return append(out, protocol.Action{Kind: protocol.ActComplete}, protocol.Action{Kind: protocol.ActClosed})
}

// mismatched reports whether a rank tells us that it called something else. That
// counts also when we are done: the other one is waiting for ever.
func (l *life) mismatched(ev *protocol.Event, digest uint64) bool {
	return ev.Kind == protocol.EvMsg && ev.Msg.Kind == protocol.MsgReady && ev.Msg.Digest != digest && l.phase != protocol.Failed
}

// Timer is never: nothing here depends on time.
func (l *life) Timer() protocol.Time { return protocol.Never }

// Phase is where the operation is.
func (l *life) Phase() protocol.Phase { return l.phase }

// Times returns when the operation reached its phases.
func (l *life) Times() protocol.Times { return l.times }

// Fail ends the operation at once.
func (l *life) Fail() {
	if l.phase < protocol.Closed {
		l.phase = protocol.Failed
	}
}
