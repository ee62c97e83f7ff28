package sim

import (
	"github.com/allcast/allcast/internal/topology"
)

// inputBuffer is how much of a lane a switch buffers for each link that leads
// into it on a lossless network; when it is full, the link stops.
const inputBuffer = 256 << 10

// queued is a packet waiting for a link, and the buffer it occupies meanwhile.
type queued struct {
	pkt *packet
	hop *hop // nil at a host
}

type fifo struct {
	q    []queued
	head int
}

func (f *fifo) len() int { return len(f.q) - f.head }

func (f *fifo) push(x queued) { f.q = append(f.q, x) }

func (f *fifo) pop() queued {
	x := f.q[f.head]
	f.q[f.head] = queued{}
	if f.head++; f.head == len(f.q) {
		f.q, f.head = f.q[:0], 0
	} else if f.head > 1024 && f.head > len(f.q)/2 {
		n := copy(f.q, f.q[f.head:])
		clear(f.q[n:])
		f.q, f.head = f.q[:n], 0
	}
	return x
}

// fairQueue serves the operations that share a NIC in turn.
type fairQueue struct {
	keys []opKey
	ops  []fifo
	next int
	n    int
}

func (f *fairQueue) push(x queued) {
	f.n++
	key := opKey{x.pkt.comm, x.pkt.seq}
	for i := range f.keys {
		if f.keys[i] == key {
			f.ops[i].push(x)
			return
		}
	}
	for i := range f.keys {
		if f.ops[i].len() == 0 { // its operation may well be over
			f.keys[i] = key
			f.ops[i].push(x)
			return
		}
	}
	f.keys = append(f.keys, key)
	f.ops = append(f.ops, fifo{})
	f.ops[len(f.ops)-1].push(x)
}

// turn is the operation to be served next.
func (f *fairQueue) turn() *fifo {
	for f.ops[f.next].len() == 0 {
		f.next = (f.next + 1) % len(f.ops)
	}
	return &f.ops[f.next]
}

func (f *fairQueue) pop() queued {
	x := f.turn().pop()
	f.n--
	f.next = (f.next + 1) % len(f.ops)
	return x
}

// link is one direction of a cable: its output queues at one end, the input
// buffer at the other.
type link struct {
	id      topology.LinkID
	to      topology.NodeID
	toHost  bool
	host    int32 // whose uplink this is; -1: a switch's
	waking  bool  // evLink is on its way
	until   int64 // busy sending until then
	psByte  float64
	latency int64
	wait    [lanes]fifo
	fair    *fairQueue   // takes the place of the bulk lane at hosts
	waiting [lanes]int64 // bytes
	held    [lanes]int64 // bytes in the input buffer at the other end

	bytes   int64
	payload int64
}

// enqueue puts a packet on a link's queue and sends what can be sent.
func (w *world) enqueue(l *link, k *packet, h *hop) {
	if w.cfg.Queue > 0 && l.host < 0 && k.kind == pktChunk && l.waiting[k.lane]+k.size > w.cfg.Queue {
		// A full queue drops datagrams. Reliable packets wait instead: their
		// retransmissions would bring them here a little later.
		w.dropped++
		w.noteArrival(max(w.now, l.until) + int64(float64(l.waiting[k.lane]+k.size)*l.psByte) + l.latency)
		w.leave(k, h)
		w.pools.release(k)
		return
	}
	if l.fair != nil && k.lane == laneBulk {
		l.fair.push(queued{k, h})
	} else {
		l.wait[k.lane].push(queued{k, h})
	}
	l.waiting[k.lane] += k.size
	w.send(l)
}

// noteArrival notes when a multicast datagram reaches a host, or would have. For one that a queue drops
// that is an estimate: when the datagram would have reached the end of that link, behind what waits for
// it. This is the host if it is the last link; links after it are not counted.
func (w *world) noteArrival(at int64) { w.lastArrival = max(w.lastArrival, at) }

// idle reports whether nothing waits for the link.
func (l *link) idle() bool {
	return l.waiting[laneControl]+l.waiting[laneBulk] == 0
}

// first is the queue of a lane that is served next; nil if the lane is empty.
func (l *link) first(lane int) *fifo {
	switch {
	case l.waiting[lane] == 0:
		return nil
	case lane == laneBulk && l.fair != nil:
		return l.fair.turn()
	}
	return &l.wait[lane]
}

func (l *link) pop(lane int) queued {
	if lane == laneBulk && l.fair != nil {
		return l.fair.pop()
	}
	return l.wait[lane].pop()
}

// send starts the next packet of a link, if there is one, the link is free and
// the other end has room. Packets that have nothing to carry any more take no time.
func (w *world) send(l *link) {
	if w.now < l.until {
		if !l.waking && !l.idle() {
			l.waking = true
			w.push(l.until, evLink, int32(l.id), nil)
		}
		return
	}
	for lane := 0; lane < lanes; {
		f := l.first(lane)
		if f == nil {
			lane++
			continue
		}
		k := f.q[f.head].pkt
		if w.cfg.Queue == 0 && !l.toHost && l.held[lane]+k.size > w.buffer {
			lane++ // room is made when a packet leaves the switch: see leave
			continue
		}
		x := l.pop(lane)
		l.waiting[lane] -= k.size
		if w.transmit(l, k, x.hop) {
			break
		}
	}
	if !l.idle() && l.until > w.now && !l.waking {
		l.waking = true
		w.push(l.until, evLink, int32(l.id), nil)
	}
}

// transmit puts a packet on the wire, or reports false if it need not go.
func (w *world) transmit(l *link, k *packet, h *hop) bool {
	if l.host >= 0 && !w.leaves(int(l.host), k) {
		w.pools.release(k)
		return false
	}
	l.until = w.now + int64(float64(k.size)*l.psByte+0.5)
	if w.cfg.Queue == 0 && !l.toHost {
		l.held[k.lane] += k.size
	}
	l.bytes += k.size
	if k.bytes > 0 {
		l.payload += int64(k.bytes)
		if k.cell >= 0 {
			w.crossings.note(int(l.id), k.cell)
		}
	}
	if l.host >= 0 && k.last && k.kind != pktResponse {
		k.refs++
		w.push(l.until, evSent, l.host, k)
	}
	w.push(l.until+l.latency, evArrive, int32(l.id), k)
	w.leave(k, h)
	return true
}

// leave gives back the buffer of the link a packet came over, once the last
// copy is on its way.
func (w *world) leave(k *packet, h *hop) {
	if h == nil {
		return
	}
	if h.left--; h.left > 0 {
		return
	}
	at, cell, from := h.at, h.cell, h.in
	w.pools.hops = append(w.pools.hops, h)
	if from == topology.NoLink {
		w.freeSum(at, opKey{k.comm, k.seq}, cell)
		return
	}
	in := &w.links[from]
	if w.cfg.Queue == 0 {
		in.held[k.lane] -= k.size
		w.send(in)
	}
}

// arrive handles a packet at the end of a link.
func (w *world) arrive(l *link, k *packet) {
	if l.toHost {
		w.hosts[l.to].arrived(k)
		return
	}
	if k.kind == pktSum {
		w.aggregate(l.to, k, w.pools.hop(k, l.id, 1))
		return
	}
	if k.tree == nil {
		w.enqueue(&w.links[w.g.Next(l.to, k.dst, k.src)], k, w.pools.hop(k, l.id, 1))
		return
	}
	back := w.g.Reverse(l.id)
	out := k.tree.Ports[l.to]
	n := 0
	for _, p := range out {
		if p != back {
			n++
		}
	}
	h := w.pools.hop(k, l.id, max(n, 1))
	if n == 0 {
		w.leave(k, h)
		w.pools.release(k)
		return
	}
	k.refs += n - 1
	for _, p := range out {
		if p != back {
			w.enqueue(&w.links[p], k, h)
		}
	}
}

// crossings counts how often each chunk crossed each link direction: one bit
// for the first time, a map for the rare rest.
type crossings struct {
	bits  []uint64
	words int
	more  map[[2]int]int
	most  int
}

func newCrossings(links, cells int) *crossings {
	c := &crossings{words: (cells + 63) / 64, more: map[[2]int]int{}}
	c.bits = make([]uint64, links*c.words)
	return c
}

func (c *crossings) note(link, cell int) {
	if c == nil {
		return
	}
	w, m := &c.bits[link*c.words+cell/64], uint64(1)<<(cell%64)
	if *w&m == 0 {
		*w |= m
		c.most = max(c.most, 1)
		return
	}
	key := [2]int{link, cell}
	if c.more[key] == 0 {
		c.more[key] = 1
	}
	c.more[key]++
	c.most = max(c.most, c.more[key])
}
