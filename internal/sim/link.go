package sim

import "github.com/allcast/allcast/internal/topology"

// inputBuffer is the size of the input buffer that a lossless switch has per link and traffic class. A
// full buffer stops the link.
const inputBuffer = 256 << 10

// queued is a packet that waits for a link, and the buffer that it occupies meanwhile.
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

// fairQueue serves the operations that share a NIC round-robin.
type fairQueue struct {
	ops  []opQueue
	next int
}

type opQueue struct {
	opKey
	fifo
}

func (f *fairQueue) push(x queued) {
	free := -1
	for i := range f.ops {
		op := &f.ops[i]
		if op.opKey == x.pkt.opKey {
			op.push(x)
			return
		}
		if free < 0 && op.len() == 0 { // its operation may have ended
			free = i
		}
	}
	if free < 0 {
		free = len(f.ops)
		f.ops = append(f.ops, opQueue{})
	}
	f.ops[free].opKey = x.pkt.opKey
	f.ops[free].push(x)
}

// turn returns the queue of the operation to serve next.
func (f *fairQueue) turn() *fifo {
	for f.ops[f.next].len() == 0 {
		f.next = (f.next + 1) % len(f.ops)
	}
	return &f.ops[f.next].fifo
}

func (f *fairQueue) pop() queued {
	x := f.turn().pop()
	f.next = (f.next + 1) % len(f.ops)
	return x
}

// link is one direction of a cable: its output queues at one end, the input buffer at the other.
type link struct {
	id      topology.LinkID
	to      topology.NodeID
	toHost  bool
	host    int32 // host whose uplink this is; -1 if a switch sends
	waking  bool  // whether evLink is scheduled
	until   int64 // end of the current transmission
	psByte  float64
	latency int64
	wait    [trafficClasses]fifo
	fair    *fairQueue            // replaces the bulk queue at hosts
	waiting [trafficClasses]int64 // bytes waiting
	held    [trafficClasses]int64 // bytes in the input buffer at the other end

	bytes   int64 // without foreign ones
	payload int64
	foreign int64        // bytes of other jobs
	flow    *foreignFlow // flow that enters the network here; nil at a link of the graph
}

// enqueue adds a packet to a link's queue and starts sending if possible.
func (w *world) enqueue(l *link, k *packet, h *hop) {
	if w.cfg.Queue > 0 && l.host < 0 && k.mayDrop() && l.waiting[k.trafficClass]+k.size > w.cfg.Queue {
		// A full queue drops datagrams. Reliable packets wait instead, because retransmissions would
		// bring them here a little later.
		if k.kind != pktForeign {
			w.dropped++
		}
		if k.kind == pktChunk {
			w.recordArrival(max(w.now, l.until) + int64(float64(l.waiting[k.trafficClass]+k.size)*l.psByte) + l.latency)
		}
		w.leave(k, h)
		w.pools.release(k)
		return
	}
	if l.fair != nil && k.trafficClass == classBulk {
		l.fair.push(queued{k, h})
	} else {
		l.wait[k.trafficClass].push(queued{k, h})
	}
	l.waiting[k.trafficClass] += k.size
	w.send(l)
}

// recordArrival records when a multicast datagram reaches a host, or would have. For a datagram that a
// queue drops, the time is an estimate: its arrival at the end of that link, behind the queue. Links
// after it are not counted.
func (w *world) recordArrival(at int64) { w.lastArrival = max(w.lastArrival, at) }

// idle reports whether no packet waits for the link.
func (l *link) idle() bool {
	return l.waiting[classControl]+l.waiting[classBulk] == 0
}

// first returns the queue of a traffic class that is served next, or nil if the class is empty.
func (l *link) first(class int) *fifo {
	switch {
	case l.waiting[class] == 0:
		return nil
	case class == classBulk && l.fair != nil:
		return l.fair.turn()
	}
	return &l.wait[class]
}

func (l *link) pop(class int) queued {
	if class == classBulk && l.fair != nil {
		return l.fair.pop()
	}
	return l.wait[class].pop()
}

// send starts the next packet of a link if the link is free and the other end has room. Packets that
// must not be sent any more take no time.
func (w *world) send(l *link) {
	if w.now < l.until {
		w.sendLater(l)
		return
	}
	for class := 0; class < trafficClasses; {
		f := l.first(class)
		if f == nil {
			class++
			continue
		}
		k := f.q[f.head].pkt
		if w.cfg.Queue == 0 && !l.toHost && l.held[class]+k.size > w.buffer {
			class++ // leave makes room when a packet leaves the switch
			continue
		}
		x := l.pop(class)
		l.waiting[class] -= k.size
		if w.transmit(l, k, x.hop) {
			break
		}
	}
	if l.until > w.now {
		w.sendLater(l)
	}
}

// sendLater schedules send for the end of the current transmission, if a packet waits.
func (w *world) sendLater(l *link) {
	if !l.waking && !l.idle() {
		l.waking = true
		w.push(l.until, evLink, int32(l.id), nil)
	}
}

// transmit puts a packet on the wire. It returns false if the packet must not be sent any more.
func (w *world) transmit(l *link, k *packet, h *hop) bool {
	if l.host >= 0 && !w.startSending(int(l.host), k) {
		w.pools.release(k)
		return false
	}
	l.until = w.now + int64(float64(k.size)*l.psByte+0.5)
	if w.cfg.Queue == 0 && !l.toHost {
		l.held[k.trafficClass] += k.size
	}
	if k.kind == pktForeign {
		w.countForeign(l, k)
	} else {
		l.bytes += k.size
	}
	if k.bytes > 0 {
		l.payload += int64(k.bytes)
		if k.cell >= 0 {
			w.crossings.record(int(l.id), k.cell)
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

// leave frees the buffer of the link that a packet arrived over, once the last copy has started.
func (w *world) leave(k *packet, h *hop) {
	if h == nil {
		return
	}
	if h.left--; h.left > 0 {
		return
	}
	left := *h
	w.pools.hops.put(h)
	if w.cfg.Queue == 0 {
		in := &w.links[left.in]
		in.held[k.trafficClass] -= k.size
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
		w.leave(k, w.pools.hop(l.id, 1))
		w.aggregate(l.to, k)
		return
	}
	if k.kind == pktForeign {
		w.forwardForeign(l, k)
		return
	}
	if k.tree == nil {
		w.enqueue(&w.links[w.g.Next(l.to, k.dst, k.src)], k, w.pools.hop(l.id, 1))
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
	h := w.pools.hop(l.id, max(n, 1))
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

// crossings counts how often each chunk crossed each direction of a link: one bit for the first time,
// and a map for the rare repetitions.
type crossings struct {
	bits     []uint64
	words    int
	repeated map[[2]int]int
	maxCount int
}

func newCrossings(links, cells int) *crossings {
	c := &crossings{words: (cells + 63) / 64, repeated: map[[2]int]int{}}
	c.bits = make([]uint64, links*c.words)
	return c
}

func (c *crossings) record(link, cell int) {
	if c == nil {
		return
	}
	w, m := &c.bits[link*c.words+cell/64], uint64(1)<<(cell%64)
	if *w&m == 0 {
		*w |= m
		c.maxCount = max(c.maxCount, 1)
		return
	}
	key := [2]int{link, cell}
	if c.repeated[key] == 0 {
		c.repeated[key] = 1
	}
	c.repeated[key]++
	c.maxCount = max(c.maxCount, c.repeated[key])
}
