package engine

import (
	"testing"

	"github.com/allcast/allcast/internal/fabric"
)

// prompt is a network that has room, or not.
type prompt struct {
	nowhere
	ready bool
}

func (p *prompt) Ready() bool { return p.ready }

// Who serves the network multicasts without waking the worker, but what would wait is the
// worker's, as is everything when nobody serves.
func TestWhoServesSends(t *testing.T) {
	e := bare(t)
	tx := &prompt{ready: true}
	s := &sender{e: e, tx: []fabric.Sender{tx}, now: []fabric.Prompt{tx}, max: benchBatch, cmds: newQueue()}
	op := bigBroadcast(t, benchBatch)
	mem := make([]byte, benchBatch*benchChunk)
	op.mem.Store(&mem)
	command := func() (woken bool) {
		s.cmds.sleeping.Store(true)
		task := newTask(cmdMulticast)
		task.op, task.n = op, benchBatch
		s.command(task)
		return s.woken()
	}

	if !command() {
		t.Error("nobody serves, and the worker is not woken")
	}
	s.obey()
	e.served.Store(true)
	if command() {
		t.Error("who serves sends, and the worker is woken")
	}
	if !s.serve() || tx.datagrams != 2*benchBatch || !s.idle() {
		t.Errorf("%d datagrams after two batches", tx.datagrams)
	}
	if s.serve() {
		t.Error("it did something, and there was nothing to do")
	}

	tx.ready = false
	command()
	if s.serve() || !s.woken() || s.idle() {
		t.Error("the network has no room, and it is not left to the worker")
	}
	s.obey()
	e.asleep.Store(true)
	if !command() {
		t.Error("who serves sleeps, and the worker is not woken")
	}
	s.obey()
	e.discard()
}

// woken reports whether the worker was woken since the last time.
func (s *sender) woken() bool {
	select {
	case <-s.cmds.wake:
		return true
	default:
		return false
	}
}
