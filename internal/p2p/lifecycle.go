package p2p

import (
	"github.com/allcast/allcast/internal/step"
	"github.com/allcast/allcast/internal/wire"
)

// lifecycle holds what all operations of this package have in common. They transfer and then close: no
// other rank needs them afterwards.
type lifecycle struct {
	phase step.Phase
	times step.Times
}

func (l *lifecycle) start(now step.Time) {
	l.phase = step.Transfer
	l.times.Start, l.times.Barrier = now, now
}

func (l *lifecycle) complete(now step.Time, out []step.Action) []step.Action {
	l.phase = step.Closed
	l.times.Have, l.times.Done = now, now
	return append(out, step.Action{Kind: step.ActComplete}, step.Action{Kind: step.ActClosed})
}

// mismatched reports whether a greeting announces a different call. It also applies to a completed
// operation, because the other rank would otherwise wait for ever.
func (l *lifecycle) mismatched(ev *step.Event, digest uint64) bool {
	return ev.Kind == step.EvMsg && ev.Msg.Kind == wire.MsgReady && ev.Msg.Digest != digest && l.phase != step.Failed
}

// Timer returns Never: the operation does not depend on time.
func (l *lifecycle) Timer() step.Time { return step.Never }

// Phase returns the current phase.
func (l *lifecycle) Phase() step.Phase { return l.phase }

// Times returns the times at which the operation reached its phases.
func (l *lifecycle) Times() step.Times { return l.times }

// Stats returns the counters of the operation, which has none.
func (l *lifecycle) Stats() step.Stats { return step.Stats{} }

// Fail ends the operation at once.
func (l *lifecycle) Fail() {
	if l.phase < step.Closed {
		l.phase = step.Failed
	}
}
