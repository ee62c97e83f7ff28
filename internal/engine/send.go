package engine

import (
	"sync"
	"sync/atomic"

	"github.com/allcast/allcast/internal/fabric"
)

// A sender is the send worker: it multicasts what the control side says, straight
// from the users' buffers. Who waits for a call and serves the network does its work as
// well, as long as the network takes it at once: to wake the worker costs more than
// most of it.
type sender struct {
	e    *Engine
	tx   []fabric.Sender // by subgroup
	now  []fabric.Prompt // likewise; empty: the worker does all
	max  int
	cmds *queue
	stop chan struct{}

	turn  sync.Mutex // of who sends, which has the rest
	batch fabric.Batch

	sealer sealer
	bytes  atomic.Uint64 // handed to the network, headers included
	sent   atomic.Uint64 // chunks
}

func newSender(e *Engine, mc fabric.Multicast) *sender {
	s := &sender{e: e, cmds: newQueue(), stop: make(chan struct{}), max: max(1, mc.Caps().Batch)}
	for sub := range mc.Subgroups() {
		s.tx = append(s.tx, mc.Sender(sub))
		if p, ok := s.tx[sub].(fabric.Prompt); ok {
			s.now = append(s.now, p)
		}
	}
	if len(s.now) < len(s.tx) {
		s.now = nil
	}
	s.batch.Headers = make([]fabric.Header, 0, s.max)
	s.batch.Payloads = make([][]byte, 0, s.max)
	return s
}

// command gives it something to do.
func (s *sender) command(t *task) {
	s.cmds.add(t)
	if s.now == nil || !s.e.served.Load() || s.e.asleep.Load() {
		s.cmds.rouse()
	}
}

// run works until it is told to stop.
func (s *sender) run() {
	defer s.e.wg.Done()
	s.e.pin()
	for {
		s.turn.Lock()
		s.obey()
		s.turn.Unlock()
		if s.cmds.sleep() {
			select {
			case <-s.cmds.wake:
			case <-s.stop:
				return
			}
		}
	}
}

// idle reports whether there is nothing to do.
func (s *sender) idle() bool { return s == nil || s.cmds.empty() }

// leave lets the worker do what there is to do.
func (s *sender) leave() {
	if !s.idle() {
		s.cmds.rouse()
	}
}

// serve does what there is to do, unless somebody is at it or would have to wait, and
// says whether it did.
func (s *sender) serve() bool {
	if s.idle() || s.now == nil || !s.turn.TryLock() {
		return false
	}
	defer s.turn.Unlock()
	for _, p := range s.now {
		if !p.Ready() {
			s.cmds.rouse()
			return false
		}
	}
	s.obey()
	return true
}

func (s *sender) obey() {
	for t := s.cmds.take(); t != nil; {
		next := t.next
		switch t.kind {
		case cmdMulticast:
			s.multicast(t)
		case cmdQuiet:
			ack := newTask(taskQuiet)
			ack.op = t.op
			s.e.push(ack)
		default:
		}
		t.free()
		t = next
	}
}

// multicast sends chunks [psn, psn+n) of our block, as few super-packets as
// possible. A short chunk ends its super-packet: the kernel cuts one into equal
// pieces, only the last may be shorter.
func (s *sender) multicast(t *task) {
	op, done := t.op, t.n
	p := op.mem.Load()
	for psn, left := t.psn, t.n; left > 0 && p != nil && !op.cancelled.Load(); {
		b := &s.batch
		b.Headers, b.Payloads = b.Headers[:0], b.Payloads[:0]
		s.sealer.out = s.sealer.out[:0]
		var bytes int
		for len(b.Headers) < s.max && left > 0 {
			off, _, length := op.geo.Locate(t.sub, psn)
			h := fabric.Header{Token: op.token, Comm: op.key.Comm, Imm: s.e.layout.Imm(op.key.Seq, psn)}
			payload := s.protect(op, t.sub, psn, &h, (*p)[off:off+int64(length)])
			b.Headers = append(b.Headers, h)
			b.Payloads = append(b.Payloads, payload)
			bytes += len(payload) + s.e.head
			psn++
			left--
			if len(payload) != len(b.Payloads[0]) {
				break
			}
		}
		if err := s.tx[t.sub].Send(b); err != nil {
			// What is not sent is missing at the others, and they fetch it.
			s.e.sendFailed(err)
			continue
		}
		s.bytes.Add(uint64(bytes))
		s.sent.Add(uint64(len(b.Headers)))
	}
	clear(s.batch.Payloads)
	ack := newTask(taskSent)
	ack.op, ack.n = op, done
	s.e.push(ack)
}
