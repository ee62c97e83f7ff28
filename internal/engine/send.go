package engine

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/allcast/allcast/internal/fabric"
)

const (
	// sendPatience is how long the send worker waits for a network that has no room. Datagrams
	// that it gives up after that are missing at the other ranks, which fetch them.
	sendPatience = 5 * time.Second
	// sendSlice is how long it waits at a time: in between it sees operations that were cancelled.
	sendSlice = 20 * time.Millisecond
)

// A sender multicasts what the control side says, straight from the users' buffers. It has a
// worker goroutine, because the network may have no room. A goroutine that waits for a call and
// serves the network sends as well, as long as the network takes datagrams at once: waking the
// worker costs more than most sends. It leaves the rest to the worker.
type sender struct {
	e    *Engine
	tx   []fabric.Sender // by subgroup
	max  int             // datagrams of a batch
	cmds *queue
	stop chan struct{}

	turn    sync.Mutex // held by the goroutine that sends; it guards the fields below
	todo    *task      // commands taken off the queue and not carried out, oldest first
	waited  time.Duration
	posted  []uint64 // by subgroup: datagrams that the network took
	unacked []sendAck
	batch   fabric.Batch
	sealer  sealer

	waiting atomic.Bool   // todo or unacked is not empty
	bytes   atomic.Uint64 // handed to the network, headers included
	sent    atomic.Uint64 // chunks
}

// sendAck is a command that was carried out, while the network may still read its memory.
type sendAck struct {
	reply *task
	sub   int
	upto  uint64 // the network is done with it when so many datagrams of the subgroup have completed
}

func newSender(e *Engine, mc fabric.Multicast) *sender {
	s := &sender{e: e, cmds: newQueue(), stop: make(chan struct{}), max: max(1, e.caps.Batch)}
	for sub := range mc.Subgroups() {
		s.tx = append(s.tx, mc.Sender(sub))
	}
	s.posted = make([]uint64, len(s.tx))
	s.batch.Headers = make([]fabric.Header, 0, s.max)
	s.batch.Payloads = make([][]byte, 0, s.max)
	return s
}

// command queues a command. The worker is not woken for it while a goroutine serves the network.
func (s *sender) command(t *task) {
	s.cmds.add(t)
	if !s.e.served.Load() || s.e.asleep.Load() {
		s.cmds.rouse()
	}
}

// run is the worker.
func (s *sender) run() {
	defer s.e.wg.Done()
	s.e.pin()
	for {
		s.turn.Lock()
		for !s.work() {
			s.await()
		}
		s.turn.Unlock()
		if s.cmds.sleep() {
			if s.waiting.Load() { // another goroutine has begun something since, and cannot end it
				s.cmds.awake()
				continue
			}
			select {
			case <-s.cmds.wake:
			case <-s.stop:
				return
			}
		}
	}
}

// idle reports whether there is nothing to do.
func (s *sender) idle() bool { return s == nil || s.cmds.empty() && !s.waiting.Load() }

// leave lets the worker do what there is to do.
func (s *sender) leave() {
	if !s.idle() {
		s.cmds.rouse()
	}
}

// serve carries out commands without blocking, unless another goroutine is at it, and reports
// whether it did.
func (s *sender) serve() bool {
	if s.idle() || !s.turn.TryLock() {
		return false
	}
	defer s.turn.Unlock()
	if !s.work() {
		s.cmds.rouse()
	}
	return true
}

// work carries out commands until none is left, or until the network has no room or still reads
// the memory of one. It reports whether none is left. The caller holds turn.
func (s *sender) work() (done bool) {
	defer func() { s.waiting.Store(!done) }()
	for {
		s.acknowledge()
		if s.todo == nil {
			if s.todo = s.cmds.take(); s.todo == nil {
				return len(s.unacked) == 0
			}
			s.waiting.Store(true)
		}
		t := s.todo
		var reply *task
		switch t.kind {
		case cmdMulticast:
			if !s.multicast(t) {
				return false
			}
			reply = newTask(taskSent)
			reply.n = uint32(t.id)
		case cmdQuiet:
			reply = newTask(taskQuiet)
		default:
			panic("engine: the send worker does not know the command")
		}
		s.waited = 0
		reply.op = t.op
		s.unacked = append(s.unacked, sendAck{reply, t.sub, s.posted[t.sub]})
		s.todo = t.next
		t.free()
	}
}

// acknowledge answers commands whose memory the network no longer needs, in order.
func (s *sender) acknowledge() {
	n := 0
	for n < len(s.unacked) && s.tx[s.unacked[n].sub].Completed() >= s.unacked[n].upto {
		s.e.push(s.unacked[n].reply)
		n++
	}
	s.unacked = append(s.unacked[:0], s.unacked[n:]...)
}

// await waits for the network, for a moment. The caller holds turn.
func (s *sender) await() {
	sub := 0
	switch {
	case s.todo != nil:
		sub = s.todo.sub
	case len(s.unacked) > 0:
		sub = s.unacked[0].sub
	}
	start := time.Now()
	s.tx[sub].Await(sendSlice)
	if s.todo != nil {
		s.waited += time.Since(start)
	}
}

// multicast sends chunks [psn, psn+n) of our block, in as few super-packets as possible, and
// reports false if the network has no room: psn and n then say what is left. A short chunk ends
// its super-packet: the kernel cuts one into equal pieces, only the last may be shorter.
func (s *sender) multicast(t *task) bool {
	op := t.op
	p := op.mem.Load()
	defer func() { clear(s.batch.Payloads) }()
	for t.n > 0 && p != nil && !op.cancelled.Load() {
		bytes := s.fill(t, *p)
		n, err := s.tx[t.sub].Send(&s.batch)
		s.posted[t.sub] += uint64(n)
		s.sent.Add(uint64(n))
		if n == len(s.batch.Headers) {
			s.bytes.Add(uint64(bytes))
		} else {
			for _, b := range s.batch.Payloads[:n] {
				s.bytes.Add(uint64(len(b) + s.e.head))
			}
		}
		switch {
		case err == nil:
		case errors.Is(err, fabric.ErrBusy) && s.waited < sendPatience:
			t.psn, t.n = t.psn+uint32(n), t.n-uint32(n)
			return false
		default:
			if errors.Is(err, fabric.ErrBusy) {
				err = fmt.Errorf("multicast: %w, for %v; is the interface's link up?", err, sendPatience)
			}
			s.e.sendFailed(err)
			s.waited = 0
			n = len(s.batch.Headers) // the rest is lost, and fetched
		}
		t.psn, t.n = t.psn+uint32(n), t.n-uint32(n)
	}
	return true
}

// fill makes a batch of the command's next chunks, and returns its size on the network.
func (s *sender) fill(t *task, mem []byte) (bytes int) {
	b, op := &s.batch, t.op
	b.Headers, b.Payloads = b.Headers[:0], b.Payloads[:0]
	s.sealer.out = s.sealer.out[:0]
	for i := uint32(0); i < t.n && len(b.Headers) < s.max; i++ {
		psn := t.psn + i
		off, _, length := op.geo.Locate(t.sub, psn)
		h := fabric.Header{Token: op.token, Comm: op.key.Comm, Imm: s.e.layout.Imm(op.key.Seq, psn)}
		payload := s.protect(op, t.sub, psn, &h, mem[off:off+int64(length)])
		b.Headers = append(b.Headers, h)
		b.Payloads = append(b.Payloads, payload)
		bytes += len(payload) + s.e.head
		if len(payload) != len(b.Payloads[0]) {
			break
		}
	}
	return bytes
}
