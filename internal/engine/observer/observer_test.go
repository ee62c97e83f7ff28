package observer

import (
	"log/slog"
	"testing"

	"github.com/allcast/allcast/internal/observe"
	"github.com/allcast/allcast/internal/settings"
	"github.com/allcast/allcast/internal/step"
)

func newTestObserver() *Observer {
	cfg := Config{Job: settings.Job{Size: 1}, Logger: slog.New(slog.DiscardHandler)}
	return New(cfg, nil, func() step.Time { return 1 })
}

func TestNoteAllocatesNothing(t *testing.T) {
	o := newTestObserver()
	seq := uint64(0)
	if n := testing.AllocsPerRun(1000, func() {
		seq++
		o.note(observe.Event{Kind: observe.Sent, Seq: seq})
	}); n != 0 {
		t.Errorf("%v allocations per event", n)
	}
}

// BenchmarkNote measures the cost of an event for the goroutine that runs the node.
func BenchmarkNote(b *testing.B) {
	o := newTestObserver()
	seq := uint64(0)
	for b.Loop() {
		seq++
		o.note(observe.Event{Kind: observe.Sent, Seq: seq, Peer: 1})
	}
}
