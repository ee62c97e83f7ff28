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

// outcome is the end of a collective on one rank.
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

// host is one machine: a NIC, a processor that may be stopped, and a node. Its receive workers and its
// control thread are independent: datagrams queue for the workers, everything else for the thread.
type host struct {
	w    *world
	id   int
	node *node.Node
	dead bool

	stalled   int64         // end of the processor's stop
	datagrams fifo          // datagrams that wait for a receive worker
	datBytes  int64         // size of the queued datagrams in bytes
	workUntil int64         // time until which the receive worker is busy
	wakeAt    int64         // time of the next evWake, or never
	taken     uint64        // number of datagrams taken from the queue
	drains    []drain       // operations that wait for the queue to drain, oldest first
	control   []event       // messages and completions that arrived while the processor was stopped
	calls     []*collective // calls to make when the processor runs again
	timerAt   int64         // time of the next evTimer, or never
	timerDue  bool          // whether the timer expired while the processor was stopped
	controlAt int64         // with noise: time at which the last message is handled
	inOrder   map[int]int64 // by connection: delivery time of its last delayed packet

	workers    []*mcast.Intake // by subgroup
	takenCount place.Taken     // datagrams taken, shared by the workers
	reports    []*mcast.Report // reports in transit to the control thread, oldest first
	claims     []*read         // claims in transit to a receive worker, oldest first
	slots      [superPacket]mcast.Slot

	puts    map[putKey][]*packet // packets of peers' sends that have not arrived completely
	early   map[opKey][]*packet  // last packets of sends for operations that this host has not started
	regions map[opKey]*region
	last    opKey   // key of the last region lookup
	lastReg *region // result of the last region lookup
	acting  bool    // whether act is running
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

// arrived handles a packet from the wire.
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
		// Each loss costs the sender a timeout. Later packets on the connection wait for it.
		for h.w.rng.Float64() < p {
			at += h.w.retransmit
		}
	}
	if n := h.w.noise; n > 0 && (k.kind == pktMessage || (k.kind == pktPut && k.last)) {
		at = max(at+int64(h.w.rng.ExpFloat64()*float64(n)), h.controlAt)
		h.controlAt = at
	}
	conn := k.src*trafficClasses + int(k.trafficClass)
	before, ok := h.inOrder[conn]
	if ok = ok && before >= h.w.now; ok {
		at = max(at, before) // deliver after the previous packet, also if both are due now
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

// reliable handles a packet of the reliable path, in order. The NIC serves and completes reads, so a
// stopped processor does not delay them.
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

// put handles a completely received send: it asks the operation's Inbox where the pieces belong.
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

// placePut places the pieces of a send, or adds them to the buffer's content.
func (h *host) placePut(r *region, recv *p2p.Recv, pieces []*packet) {
	mode := put
	switch {
	case recv.First:
		mode = addToInput
	case recv.Reduce:
		mode = add
	}
	first := pieces[0].off
	for _, k := range pieces {
		if k.bytes > 0 {
			r.countReceived(k)
			r.mem.place(recv.Off+k.off-first, &k.pay, mode)
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

// act executes the actions of the node. The caller has changed the node's state, so its timer may have
// moved even without actions.
func (h *host) act() {
	if h.acting {
		return // the running call of act sees the new actions
	}
	h.acting = true
	for {
		acts := h.node.Actions()
		if len(acts) == 0 {
			break
		}
		for i := range acts {
			h.execute(&acts[i])
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
		return // an earlier timer has replaced it
	}
	h.timerAt = never
	if h.w.now < h.stalled {
		h.timerDue = true
		return
	}
	h.runTimer()
}

// runTimer runs the node's timers. Datagrams in the receive queue are not lost.
func (h *host) runTimer() {
	if h.datagrams.len() > 0 {
		h.node.Queued(ns(h.w.now))
	}
	h.node.Timer(ns(h.w.now))
	h.act()
}
