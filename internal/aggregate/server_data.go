package aggregate

import (
	"errors"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/allcast/allcast/internal/inc"
)

// jobData is the part of a job that the data path uses. Its lock comes after the server's.
type jobData struct {
	mu      sync.Mutex
	session *inc.Session
	owners  []netip.AddrPort // data addresses of attached ranks, by world rank
	parent  netip.AddrPort   // not valid: not attached
	unsent  uint64           // sums and wants without a known address
}

func (d *jobData) setOwners(ranks []member) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, m := range ranks {
		d.owners[m.Rank] = plain(m.Addr)
	}
}

// forgetOwners ends that the aggregator sends to ranks.
func (d *jobData) forgetOwners(ranks []member) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, m := range ranks {
		d.owners[m.Rank] = netip.AddrPort{}
	}
}

func (d *jobData) setParent(a netip.AddrPort) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.parent = a
}

// dataCounters count the datagrams of all jobs.
type dataCounters struct {
	messages, datagrams, bytes     atomic.Uint64
	malformed, unknown             atomic.Uint64 // neither a contribution nor an offer; of no session here
	trains, sums, sumBytes, unsent atomic.Uint64
	receiveErrors                  atomic.Uint64
}

// receive handles the datagrams of one socket until it is closed.
func (s *Server) receive(sock *socket) {
	in, w := newInbox(), newWorker(s, sock)
	for {
		n, err := sock.receive(in)
		switch {
		case errors.Is(err, ErrClosed):
			return
		case err != nil:
			s.data.receiveErrors.Add(1)
			select {
			case <-time.After(time.Millisecond): // the error may persist
				continue
			case <-s.ctx.Done():
				return
			}
		}
		w.table = *s.table.Load()
		for i := range n {
			b, segment := in.message(i)
			w.bytes += uint64(len(b))
			each(b, segment, w.handle)
		}
		w.send()
		w.count(n)
		w.table = nil // a job that ends meanwhile must not keep its memory until the next datagram
	}
}

const (
	stageBytes = 1 << 20
	stageSums  = 1024
	// sumPatience is how long the sums of a batch wait for room. They hold up all other destinations and jobs.
	sumPatience = 20 * time.Millisecond
	// sendBuffer is the wanted send buffer of a socket. Sums to many links wait in it, and a full link must not keep the
	// others idle. Windows bound what is in it.
	sendBuffer = 16 << 20
)

// A worker is the state of one receiving goroutine. It allocates nothing per datagram.
type worker struct {
	s      *Server
	sock   *socket
	outbox *outbox
	table  map[uint32]*job
	locked *job // job whose data lock this worker holds
	handle func(datagram []byte)

	stage   []byte // copies of sums to send
	sums    []sum
	train   []byte
	header  inc.Header
	warned  bool
	bytes   uint64
	good    uint64
	unknown uint64
	bad     uint64
}

// A sum is a datagram to send.
type sum struct {
	to         netip.AddrPort // the zero value once it is in a train
	job        *job
	start, end int // in the stage
}

func newWorker(s *Server, sock *socket) *worker {
	w := &worker{
		s: s, sock: sock, outbox: newOutbox(sumPatience), stage: make([]byte, 0, stageBytes), sums: make([]sum, 0, stageSums),
		train: make([]byte, 0, maxTrain),
	}
	w.handle = w.contribute
	return w
}

// contribute handles one datagram.
func (w *worker) contribute(d []byte) {
	if len(d) < inc.HeaderSize || inc.Kind(d[0]) != inc.Contribution && inc.Kind(d[0]) != inc.Offer {
		w.bad++
		return
	}
	if len(w.sums) == cap(w.sums) || len(w.stage)+inc.HeaderSize+MaxChunk > cap(w.stage) {
		w.send()
	}
	h := &w.header
	*h = inc.ParseHeader(d)
	if w.locked == nil || w.locked.id != h.Session {
		w.release()
		j := w.table[h.Session]
		if j == nil {
			w.unknown++
			return
		}
		j.data.mu.Lock()
		w.locked = j
	}
	w.good++
	j := w.locked
	f, ok := j.data.session.Contribute(h, d[inc.HeaderSize:])
	if !ok {
		return
	}
	to := j.destination(&f)
	if !to.IsValid() {
		j.data.unsent++
		return
	}
	w.add(j, to, &f)
}

// destination returns where a datagram goes; the zero value if that is unknown. The caller holds the lock of the data.
func (j *job) destination(f *inc.Forward) netip.AddrPort {
	rank := int(f.Owner)
	switch f.Kind {
	case inc.Contribution:
		return j.data.parent
	case inc.Want:
		rank = j.tree.Nodes[j.node].Children[f.Child].Rank // an aggregator offers nothing
	}
	if rank < 0 || rank >= len(j.data.owners) {
		return netip.AddrPort{}
	}
	return j.data.owners[rank]
}

// release gives the lock of a job back.
func (w *worker) release() {
	if w.locked != nil {
		w.locked.data.mu.Unlock()
		w.locked = nil
	}
}

// add stages a sum or a Want, for which there is room.
func (w *worker) add(j *job, to netip.AddrPort, f *inc.Forward) {
	at := len(w.stage)
	w.stage = w.stage[:at+inc.HeaderSize]
	f.Put(w.stage[at:])
	w.stage = append(w.stage, f.Payload...)
	w.sums = append(w.sums, sum{to: to, job: j, start: at, end: len(w.stage)})
}

// send sends all sums that are staged. Those with the same destination form trains. It gives the lock of the job back
// first, because a send may wait.
func (w *worker) send() {
	w.release()
	w.outbox.begin()
	for i := range w.sums {
		first := &w.sums[i]
		if !first.to.IsValid() {
			continue
		}
		to, segment, n, sums := first.to, first.end-first.start, 0, 0
		w.train = w.train[:0]
		for k := i; k < len(w.sums); k++ {
			d := &w.sums[k]
			size := d.end - d.start
			if d.to != to {
				continue
			}
			if size > segment || len(w.train)+size > maxTrain || n == maxSegments {
				break
			}
			w.train = append(w.train, w.stage[d.start:d.end]...)
			d.to = netip.AddrPort{}
			if size > inc.HeaderSize {
				sums++ // in front of a Want, which is shorter
			}
			if n++; size < segment {
				break // only the last one may be shorter
			}
		}
		w.transmit(first.job, to, segment, n, sums)
	}
	clear(w.sums) // they would keep the memory of jobs that have ended
	w.stage, w.sums = w.stage[:0], w.sums[:0]
}

// transmit sends the train of n datagrams, of which the first are sums. They may belong to several jobs, if an
// aggregator is the parent of all of them; the first one counts.
func (w *worker) transmit(j *job, to netip.AddrPort, segment, n, sums int) {
	c := &w.s.data
	sent, err := w.sock.send(w.outbox, to, w.train, segment)
	if err != nil {
		c.unsent.Add(uint64(n - sent))
		if !errors.Is(err, ErrClosed) && !errors.Is(err, errNoRoom) && !w.warned {
			w.warned = true // once per worker, since any datagram may fail
			w.s.later("cannot send a sum", "to", to, "job", j.name, "error", err)
		}
	}
	if sent > 0 {
		c.trains.Add(1)
		c.sums.Add(uint64(min(sent, sums)))
		c.sumBytes.Add(uint64(min(len(w.train), sent*segment)))
	}
}

// later logs a warning of the data path, which a log that blocks must not stop. The caller is a goroutine that Close
// waits for.
func (s *Server) later(text string, args ...any) { s.wg.Go(func() { s.log.Warn(text, args...) }) }

// count adds the worker's counters of some messages to the server's.
func (w *worker) count(messages int) {
	c := &w.s.data
	c.messages.Add(uint64(messages))
	c.datagrams.Add(w.good)
	c.bytes.Add(w.bytes)
	if w.bad+w.unknown > 0 {
		c.malformed.Add(w.bad)
		c.unknown.Add(w.unknown)
	}
	w.good, w.bytes, w.bad, w.unknown = 0, 0, 0, 0
}
