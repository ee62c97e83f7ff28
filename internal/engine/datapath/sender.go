package datapath

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/allcast/allcast/internal/engine/queue"
	"github.com/allcast/allcast/internal/fabric"
	"github.com/allcast/allcast/internal/wire"
)

const (
	// sendPatience is how long the send worker waits for a network that has no room. It gives up
	// datagrams after that, and the other ranks fetch them.
	sendPatience = 5 * time.Second
	// sendSlice is how long one wait takes. In between, the worker notices cancelled operations.
	sendSlice = 20 * time.Millisecond
)

// A sender multicasts to some subgroups what control asks for. It has a worker goroutine, because the
// network may have no room. A goroutine that polls the network also does the work of the first sender:
// waking the worker costs more than most sends. Other senders exist where processors are free for them.
type sender struct {
	d    *Datapath
	main bool            // a goroutine that polls the network also sends
	tx   []fabric.Sender // by stream of the network; it uses those of its subgroups
	max  int             // datagrams per batch
	cmds *queue.Queue[command]
	stop chan struct{}

	turn    sync.Mutex           // held by the goroutine that sends; guards the fields below
	todo    *queue.Item[command] // commands taken off the queue and not carried out, oldest first
	waited  time.Duration
	posted  []uint64 // by stream of the network: datagrams that it took
	unacked []sendAck
	batch   fabric.Batch
	sealer  sealer

	unfinished atomic.Bool   // todo or unacked is not empty
	bytes      atomic.Uint64 // handed to the network, headers included
	sent       atomic.Uint64 // chunks
	queueFull  atomic.Uint64 // sends that ended with fabric.ErrQueueFull
}

// sendAck is a command that was carried out, while the network may still read its memory.
type sendAck struct {
	kind EventKind
	op   *Operation
	n    uint32
	to   int    // stream of the network
	upto uint64 // completed datagrams of the stream after which the network no longer reads the memory
}

func newSender(d *Datapath, mc fabric.Multicast, i int) *sender {
	s := &sender{d: d, main: i == 0, cmds: queue.New[command](), stop: make(chan struct{}), max: max(1, d.caps.Batch)}
	for stream := range mc.Streams() {
		s.tx = append(s.tx, mc.Sender(stream))
	}
	s.posted = make([]uint64, len(s.tx))
	s.batch.Headers = make([]wire.Header, 0, s.max)
	s.batch.Payloads = make([][]byte, 0, s.max)
	return s
}

// command queues a command. It does not wake the worker while a leader polls and sends. With now set, it
// carries the command out itself if that is possible without blocking.
func (s *sender) command(c command, now bool) {
	t := s.cmds.Item()
	t.Value = c
	s.cmds.Add(t)
	if (!now || !s.serve()) && (!s.main || s.d.Polling.Leader() != LeaderPolls) {
		s.cmds.Rouse()
	}
}

func (s *sender) run() {
	defer s.d.workers.Done()
	s.d.pin()
	for {
		s.turn.Lock()
		for !s.work() {
			s.await()
		}
		s.turn.Unlock()
		if s.cmds.Sleep() {
			if s.unfinished.Load() { // the leader has begun something since, and cannot finish it
				s.cmds.Awake()
				continue
			}
			select {
			case <-s.cmds.Wake():
			case <-s.stop:
				return
			}
		}
	}
}

// idle reports whether there is nothing to do.
func (s *sender) idle() bool { return s == nil || s.cmds.Empty() && !s.unfinished.Load() }

// rouse wakes the worker if there is something to do.
func (s *sender) rouse() {
	if !s.idle() {
		s.cmds.Rouse()
	}
}

// serve carries out commands without blocking. It reports false if none wait or another goroutine sends.
func (s *sender) serve() bool {
	if s.idle() || !s.turn.TryLock() {
		return false
	}
	defer s.turn.Unlock()
	if !s.work() {
		s.cmds.Rouse()
	}
	return true
}

// work carries out commands until none is left, or until the network has no room or still reads the
// memory of one. It reports whether none is left. The caller holds turn.
func (s *sender) work() (done bool) {
	defer func() { s.unfinished.Store(!done) }()
	for {
		s.acknowledge()
		if s.todo == nil {
			if s.todo = s.cmds.Take(); s.todo == nil {
				return len(s.unacked) == 0
			}
			s.unfinished.Store(true)
		}
		c := &s.todo.Value
		kind := Sent
		switch c.kind {
		case commandMulticast:
			if !s.multicast(c) {
				return false
			}
		case commandQuiesce:
			kind = quiet
		default:
			panic("datapath: unknown command for the send worker")
		}
		s.waited = 0
		s.unacked = append(s.unacked, sendAck{kind, c.op, c.total, c.to, s.posted[c.to]})
		s.todo = s.cmds.Free(s.todo)
	}
}

// acknowledge answers commands whose memory the network no longer needs, in order.
func (s *sender) acknowledge() {
	n := 0
	for n < len(s.unacked) && s.tx[s.unacked[n].to].Completed() >= s.unacked[n].upto {
		a := &s.unacked[n]
		s.d.sink.Report(Event{Kind: a.kind, Op: a.op, N: a.n})
		n++
	}
	s.unacked = append(s.unacked[:0], s.unacked[n:]...)
}

// await waits for the network, for a moment. The caller holds turn.
func (s *sender) await() {
	to := 0
	switch {
	case s.todo != nil:
		to = s.todo.Value.to
	case len(s.unacked) > 0:
		to = s.unacked[0].to
	}
	start := time.Now()
	s.tx[to].Await(sendSlice)
	if s.todo != nil {
		s.waited += time.Since(start)
	}
}

// multicast sends chunks [psn, psn+n) of this rank's block, in as few super-packets as possible. It
// reports false if the network has no room: psn and n then say what is left. A short chunk ends its
// super-packet, because the kernel cuts one into equal pieces of which only the last may be shorter.
func (s *sender) multicast(c *command) bool {
	op := c.op
	p := op.mem.Load()
	if op.eager {
		p = &op.copied
	}
	defer func() { clear(s.batch.Payloads) }()
	for c.n > 0 && p != nil && !op.cancelled.Load() {
		s.fill(c, *p)
		n, err := s.tx[c.to].Send(&s.batch)
		bytes := n * s.d.protect.head
		for _, b := range s.batch.Payloads[:n] {
			bytes += len(b)
		}
		s.bytes.Add(uint64(bytes))
		s.sent.Add(uint64(n))
		s.posted[c.to] += uint64(n)
		busy := errors.Is(err, fabric.ErrBusy)
		if errors.Is(err, fabric.ErrQueueFull) {
			s.queueFull.Add(1)
		}
		retry := busy && s.waited < sendPatience
		if err != nil && !retry {
			if busy {
				err = fmt.Errorf("multicast: %w, for %v; is the interface's link up?", err, sendPatience)
			}
			s.d.sendFailed(err)
			s.waited = 0
			n = len(s.batch.Headers) // other ranks fetch the rest
		}
		c.psn, c.n = c.psn+uint32(n), c.n-uint32(n)
		if retry {
			return false
		}
	}
	return true
}

// fill makes a batch of the command's next chunks.
func (s *sender) fill(c *command, mem []byte) {
	b, op := &s.batch, c.op
	b.Headers, b.Payloads = b.Headers[:0], b.Payloads[:0]
	s.sealer.out = s.sealer.out[:0]
	for i := uint32(0); i < c.n && len(b.Headers) < s.max; i++ {
		psn := c.psn + i
		off, _, length := op.geo.Locate(c.stream, psn)
		h := wire.Header{Token: op.token, Comm: op.Key.Comm, Imm: s.d.cfg.Layout.Imm(op.Key.Seq, op.tag|psn)}
		payload := s.protect(op, c.stream, psn, &h, mem[off:off+int64(length)])
		b.Headers = append(b.Headers, h)
		b.Payloads = append(b.Payloads, payload)
		if len(payload) != len(b.Payloads[0]) {
			break
		}
	}
}
