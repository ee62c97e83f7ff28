package datapath

import (
	"slices"
	"testing"
	"time"

	"github.com/allcast/allcast/internal/engine/queue"
	"github.com/allcast/allcast/internal/fabric"
)

// scripted is a network that takes a given number of datagrams, and completes them when told to.
type scripted struct {
	room      int // datagrams that it takes before it is busy; negative: any number
	took      int
	completed uint64
	awaited   int
}

func (s *scripted) Send(b *fabric.Batch) (int, error) {
	n := len(b.Headers)
	if s.room < 0 {
		s.took += n
		return n, nil
	}
	n = min(n, s.room)
	s.room -= n
	s.took += n
	if n < len(b.Headers) {
		return n, fabric.ErrBusy
	}
	return n, nil
}

func (s *scripted) Completed() uint64   { return s.completed }
func (s *scripted) Await(time.Duration) { s.awaited++ }

// sendBench is a sender on a scripted network, with an operation of one batch.
func sendBench(t *testing.T) (s *sender, tx *scripted, multicast func(*Operation) bool) {
	t.Helper()
	d, _ := bare(t)
	tx = &scripted{room: -1}
	s = &sender{
		d: d, main: true, tx: []fabric.Sender{tx}, posted: make([]uint64, 1), max: benchBatch, cmds: queue.New[command](),
	}
	return s, tx, func(op *Operation) (woken bool) {
		s.cmds.Sleep()
		s.command(command{kind: commandMulticast, op: op, n: benchBatch, total: benchBatch}, false)
		return s.woken()
	}
}

func sendOp(t *testing.T) *Operation {
	t.Helper()
	op := bigBroadcast(t, benchBatch)
	mem := make([]byte, benchBatch*benchChunk)
	op.mem.Store(&mem)
	return op
}

// A leader that polls multicasts without waking the worker. The worker sends when there is no leader, or
// when the leader sleeps.
func TestServeSends(t *testing.T) {
	s, tx, multicast := sendBench(t)
	op := sendOp(t)
	tx.completed = 1 << 20
	if !multicast(op) {
		t.Error("there is no leader, and the worker was not woken")
	}
	s.work()
	s.d.Polling.SetLeader(LeaderPolls)
	if multicast(op) {
		t.Error("a leader polls, and the worker was woken")
	}
	if !s.serve() || tx.took != 2*benchBatch || !s.idle() {
		t.Errorf("the network got %d datagrams of two batches", tx.took)
	}
	if s.serve() {
		t.Error("serve did something, and there was nothing to do")
	}
	s.d.Polling.SetLeader(LeaderSleeps)
	if !multicast(op) {
		t.Error("the leader sleeps, and the worker was not woken")
	}
	s.work()
}

// serve never waits for the network. The worker sends the rest of a batch, from the first datagram that
// was not taken.
func TestServeDoesNotBlock(t *testing.T) {
	s, tx, multicast := sendBench(t)
	op := sendOp(t)
	tx.room, tx.completed = 3, 1<<20
	s.d.Polling.SetLeader(LeaderPolls)
	multicast(op)
	if s.serve(); tx.took != 3 || tx.awaited > 0 {
		t.Fatalf("the network took %d datagrams and was waited for %d times; want 3 and 0", tx.took, tx.awaited)
	}
	if !s.woken() || s.idle() {
		t.Fatal("the network is busy, and the worker was not woken")
	}
	tx.room = -1
	if !s.work() || tx.took != benchBatch {
		t.Fatalf("the network got %d of %d datagrams", tx.took, benchBatch)
	}
	if got := s.replies(); !slices.Equal(got, []EventKind{Sent}) {
		t.Errorf("replies %v", got)
	}
}

// A command is answered when the network no longer needs its memory, and in order: an operation
// is quiet only after what it sent before has completed.
func TestSendAcknowledges(t *testing.T) {
	s, tx, multicast := sendBench(t)
	op := sendOp(t)
	multicast(op)
	s.command(command{kind: commandQuiesce, op: op}, false)
	tx.completed = benchBatch - 1
	if s.work() || len(s.replies()) > 0 {
		t.Fatal("answered while the network reads the memory")
	}
	tx.completed = benchBatch
	if !s.work() {
		t.Fatal("not answered, and the network is done")
	}
	if got := s.replies(); !slices.Equal(got, []EventKind{Sent, quiet}) {
		t.Errorf("replies %v", got)
	}
}

// A cancelled operation is quiet although the network has no room.
func TestSendCancelled(t *testing.T) {
	s, tx, multicast := sendBench(t)
	op := sendOp(t)
	tx.room = 0
	multicast(op)
	s.command(command{kind: commandQuiesce, op: op}, false)
	if s.work() {
		t.Fatal("it sent to a network without room")
	}
	op.cancelled.Store(true)
	if !s.work() || tx.took != 0 {
		t.Fatalf("a cancelled operation sent %d datagrams", tx.took)
	}
	if got := s.replies(); !slices.Equal(got, []EventKind{Sent, quiet}) {
		t.Errorf("replies %v", got)
	}
}

// woken reports whether the worker was woken since the last time.
func (s *sender) woken() bool {
	select {
	case <-s.cmds.Wake():
		return true
	default:
		return false
	}
}

// replies takes the answers to commands.
func (s *sender) replies() (kinds []EventKind) {
	for _, ev := range s.d.sink.(*recorded).take() {
		kinds = append(kinds, ev.Kind)
	}
	return kinds
}
