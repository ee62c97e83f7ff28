package sim

import (
	"math"

	"github.com/allcast/allcast/internal/mcast"
	"github.com/allcast/allcast/internal/node"
	"github.com/allcast/allcast/internal/p2p"
	"github.com/allcast/allcast/internal/place"
	"github.com/allcast/allcast/internal/step"
	"github.com/allcast/allcast/internal/wire"
)

// outcome is how a collective ended on one rank.
type outcome struct {
	ended bool
	at    int64
	err   *node.Error
	spent node.Spent
}

type opKey struct {
	comm uint32
	seq  uint64
}

type putKey struct {
	opKey
	src int
	nth uint32
}

// host is one machine: a NIC that the network reaches, a processor that may
// be stopped, and a node. Its two sides are independent: datagrams queue for the
// receive workers, everything else for the control thread.
type host struct {
	w    *world
	id   int
	node *node.Node
	dead bool

	stalled   int64         // the processor is stopped until then
	datagrams fifo          // received, waiting for a receive worker
	datBytes  int64         // their bytes
	workUntil int64         // the receive worker is busy until then
	wakeAt    int64         // when evWake comes; never: not
	taken     uint64        // datagrams taken off the queue so far
	drains    []drain       // operations that wait for the queue, oldest first
	control   []event       // messages and completions that arrived while stopped
	calls     []*collective // to be made when it runs again
	timerAt   int64         // when evTimer comes; never: not
	timerDue  bool          // it came while stopped
	ctlAt     int64         // with noise: when the last message is handled
	inOrder   map[int]int64

	workers []*mcast.Intake // by subgroup
	tally   place.Taken     // what they share
	reports []*mcast.Report // on their way to the control thread, oldest first
	claims  []*read         // on their way to a receive worker, oldest first
	slots   [superPacket]mcast.Slot

	puts    map[putKey][]*packet // sends of others that have not all arrived
	early   map[opKey][]*packet  // their last packets, of operations that have not begun here
	regions map[opKey]*region
	last    opKey // the region looked up last
	lastReg *region
	acting  bool // act is under way
	sent    int64
}

const never = math.MaxInt64

func ns(ps int64) step.Time { return step.Time(ps / 1000) }

func ps(t step.Time) int64 {
	if t > never/1000 {
		return never
	}
	return int64(t) * 1000
}

// arrived takes a packet off the wire.
func (h *host) arrived(k *packet) {
	if h.dead {
		h.w.pools.release(k)
		return
	}
	if k.kind == pktChunk {
		h.datagram(k)
		return
	}
	at := h.w.now
	if p := h.w.cfg.LossAll; p > 0 {
		// Each loss costs the sender a timeout; what follows on the same
		// connection waits for it.
		for h.w.rng.Float64() < p {
			at += h.w.retransmit
		}
	}
	if n := h.w.noise; n > 0 && (k.kind == pktMessage || (k.kind == pktPut && k.last)) {
		at = max(at+int64(h.w.rng.ExpFloat64()*float64(n)), h.ctlAt)
		h.ctlAt = at
	}
	conn := k.src*lanes + int(k.lane)
	before, ok := h.inOrder[conn]
	if ok = ok && before >= h.w.now; ok {
		at = max(at, before) // and after it, also when it is due at this instant
	}
	if ok || at > h.w.now {
		h.inOrder[conn] = at
		h.w.push(at, evDeliver, int32(h.id), k)
		return
	}
	h.reliable(k)
}

// start makes a call.
func (h *host) start(c *collective) {
	var err error
	switch {
	case c.plan != nil:
		err = h.node.Start(ns(h.w.now), c.comm, c.req, c.plan)
	case c.p2p != nil:
		err = h.node.StartPlan(ns(h.w.now), c.comm, c.req, c.p2p(c.rankOf(h.id)))
	default:
		err = h.node.StartReduction(ns(h.w.now), c.comm, c.req, &p2p.Reduction{
			Kind: c.kind, Rank: c.rankOf(h.id), Size: len(c.members), Counts: c.counts, Chunk: c.chunk,
		})
	}
	if err != nil {
		h.w.violate("rank %d could not start: %v", h.id, err)
	}
	h.act()
}

func (h *host) region(key opKey) *region {
	if h.lastReg == nil || h.last != key {
		h.last, h.lastReg = key, h.regions[key]
	}
	return h.lastReg
}

// reliable takes a packet of the reliable path, in order. Reads are served and
// finished by the NIC: a stopped processor does not hold them up.
func (h *host) reliable(k *packet) {
	switch k.kind {
	case pktRead:
		h.serve(k)
	case pktResponse:
		h.readData(k)
	case pktPut:
		key := putKey{opKey{k.comm, k.seq}, k.src, k.psn}
		h.puts[key] = append(h.puts[key], k)
		if !k.last {
			return
		}
		fallthrough
	default:
		if h.w.now < h.stalled {
			h.control = append(h.control, event{kind: evDeliver, pkt: k})
			return
		}
		h.message(k)
	}
}

func (h *host) message(k *packet) {
	switch k.kind {
	case pktPut:
		h.put(k)
		return
	case pktResult:
		h.result(k)
		return
	}
	m, err := wire.ParseMsg(k.msg)
	if err != nil {
		h.w.violate("rank %d sent a message that does not decode: %v", k.src, err)
	} else {
		h.node.Message(ns(h.w.now), k.src, &m)
	}
	h.w.pools.release(k)
	h.act()
}

// put takes a send that has arrived: it asks the operation's Inbox where its pieces belong.
func (h *host) put(last *packet) {
	key := putKey{opKey{last.comm, last.seq}, last.src, last.psn}
	h.node.Heard(ns(h.w.now), last.src)
	r := h.regions[key.opKey]
	if r == nil && h.node.Early(last.src, last.comm, last.seq, last.all) {
		h.early[key.opKey] = append(h.early[key.opKey], last)
		return
	}
	pieces := h.puts[key]
	delete(h.puts, key)
	if r == nil || r.inbox == nil {
		h.drop(pieces)
		return
	}
	i, recv, hold, ok := r.inbox.Take(r.mem.c.rankOf(last.src), last.psn, last.all)
	switch {
	case !ok:
		h.drop(pieces)
		return
	case hold:
		if r.held == nil {
			r.held = map[int][]*packet{}
		}
		r.held[i] = pieces
	default:
		h.placePut(r, recv, pieces)
	}
	r.inbox.Arrived(i)
	for i := r.inbox.Next(); i >= 0; i = r.inbox.Next() {
		pieces := r.held[i]
		delete(r.held, i)
		h.placePut(r, r.inbox.Recv(i), pieces)
		r.inbox.Arrived(i)
	}
	prefix, left := r.inbox.Progress()
	h.node.Pieces(ns(h.w.now), last.src, last.comm, last.seq, prefix, left)
	h.act()
}

// placePut puts the pieces of a send in place, or adds them to what is there.
func (h *host) placePut(r *region, recv *p2p.Recv, pieces []*packet) {
	how := put
	switch {
	case recv.First:
		how = addToInput
	case recv.Reduce:
		how = add
	}
	first := pieces[0].off
	for _, k := range pieces {
		if k.bytes > 0 {
			r.took(k)
			r.mem.place(recv.Off+k.off-first, &k.pay, how)
		}
	}
	h.drop(pieces)
}

func (h *host) drop(pieces []*packet) {
	for _, k := range pieces {
		h.w.pools.release(k)
	}
}

func (h *host) batchSent(k *packet) {
	h.node.Sent(ns(h.w.now), k.comm, k.seq, k.n)
	h.w.pools.release(k)
	h.act()
}

// act carries out what the node wants. The caller has changed what the node knows, so its timer may
// have moved even if it wants nothing.
func (h *host) act() {
	if h.acting {
		return // who is at it sees what is new
	}
	h.acting = true
	for {
		acts := h.node.Actions()
		if len(acts) == 0 {
			break
		}
		for i := range acts {
			h.do(&acts[i])
		}
	}
	h.acting = false
	h.rearm()
}

func (h *host) rearm() {
	at := ps(h.node.NextTimer())
	if at < h.timerAt {
		h.timerAt = max(at, h.w.now)
		h.w.push(h.timerAt, evTimer, int32(h.id), nil)
	}
}

func (h *host) timer() {
	if h.dead || h.w.now != h.timerAt {
		return // an earlier one took its place
	}
	h.timerAt = never
	if h.w.now < h.stalled {
		h.timerDue = true
		return
	}
	h.lookAtClock()
}

// lookAtClock lets the node see the time. What waits in the receive queue is not lost.
func (h *host) lookAtClock() {
	if h.datagrams.len() > 0 {
		h.node.Queued(ns(h.w.now))
	}
	h.node.Timer(ns(h.w.now))
	h.act()
}
