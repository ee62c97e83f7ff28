package sim

import (
	"math"

	"github.com/allcast/allcast/internal/node"
	"github.com/allcast/allcast/internal/p2p"
	"github.com/allcast/allcast/internal/step"
	"github.com/allcast/allcast/internal/wire"
)

type putKey struct {
	opKey
	src int
	nth uint32
}

// host is one machine: a NIC, a processor that may be stopped, and a node. Its receive workers and its
// control thread are independent: datagrams queue for the workers, everything else for the thread.
type host struct {
	processor
	receiver
	w    *world
	id   int
	node *node.Node
	dead bool

	inOrder map[int]int64        // by connection: delivery time of its last delayed packet
	puts    map[putKey][]*packet // packets of peers' sends that have not arrived completely
	early   map[opKey][]*packet  // last packets of sends for operations that this host has not started
	regions map[opKey]*region
	kept    map[opKey]*region // copies of the blocks that eager operations sent
	last    opKey             // key of the last region lookup
	lastReg *region           // result of the last region lookup
	acting  bool              // whether act is running
	sent    int64
}

// processor is the state of the control thread.
type processor struct {
	stalled   int64         // end of the processor's stop
	wakeAt    int64         // time of the next evWake, or never
	control   []event       // messages and completions that arrived while the processor was stopped
	calls     []*collective // calls to make when the processor runs again
	timerAt   int64         // time of the next evTimer, or never
	timerDue  bool          // whether the timer expired while the processor was stopped
	controlAt int64         // with noise: time at which the last message is handled
}

const never = math.MaxInt64

func ns(ps int64) step.Time { return step.Time(ps / 1000) }

func ps(t step.Time) int64 {
	if t > never/1000 {
		return never
	}
	return int64(t) * 1000
}

func newHost(w *world, id int, cfg node.Config) *host {
	h := &host{
		processor: processor{timerAt: never, wakeAt: never}, w: w, id: id,
		regions: map[opKey]*region{}, kept: map[opKey]*region{},
		puts: map[putKey][]*packet{}, early: map[opKey][]*packet{}, inOrder: map[int]int64{},
	}
	cfg.Rank, cfg.Taken = id, &h.takenCount
	h.node = node.New(0, cfg)
	return h
}

// stopped reports whether the processor is stopped.
func (h *host) stopped() bool { return h.w.now < h.stalled }

// arrived handles a packet from the wire.
func (h *host) arrived(k *packet) {
	if h.dead {
		h.w.pools.release(k)
		return
	}
	if k.isDatagram() {
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
	if k.kind == pktMessage || (k.kind == pktPut && k.last) {
		at += h.w.reaction
		if n := h.w.noise; n > 0 {
			at = max(at+int64(h.w.rng.ExpFloat64()*float64(n)), h.controlAt)
			h.controlAt = at
		}
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
	h.catchUp()
	var err error
	switch {
	case c.plan != nil:
		err = h.node.Start(ns(h.w.now), c.comm, c.req, c.plan)
	case c.plans != nil:
		rank := c.rankOf(h.id)
		err = h.node.StartPlan(ns(h.w.now), c.comm, c.req, c.plans[rank])
		c.plans[rank] = nil // only the node needs it any more
	case c.exchange != nil:
		err = h.startMail(c)
	default:
		err = h.startReduction(c)
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
	h.catchUp()
	switch k.kind {
	case pktRead:
		h.serve(k)
		return
	case pktResponse:
		h.readData(k)
		return
	case pktPut:
		key := putKey{k.opKey, k.src, k.psn}
		h.puts[key] = append(h.puts[key], k)
		if !k.last {
			return
		}
	}
	h.onProcessor(event{kind: evDeliver, pkt: k})
}

// onProcessor handles an event of the control thread, now or when the processor runs again.
func (h *host) onProcessor(e event) {
	h.catchUp()
	if h.stopped() {
		h.control = append(h.control, e)
		return
	}
	h.handle(e)
}

func (h *host) handle(e event) {
	switch e.kind {
	case evSent:
		h.node.Sent(ns(h.w.now), e.pkt.comm, e.pkt.seq, e.pkt.n)
		h.w.pools.release(e.pkt)
		h.act()
	case evReport, evClaim:
		h.handleNotified(e.kind)
	case evSummed:
		h.summed(e.pkt)
	default:
		h.message(e.pkt)
	}
}

func (h *host) message(k *packet) {
	switch k.kind {
	case pktPut:
		h.put(k)
		return
	}
	m, err := wire.ParseMsg(k.data)
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
	key := putKey{last.opKey, last.src, last.psn}
	h.node.Heard(ns(h.w.now), last.src)
	r := h.regions[key.opKey]
	if r == nil && h.node.Early(last.src, last.comm, last.seq, last.all) {
		h.early[key.opKey] = append(h.early[key.opKey], last)
		return
	}
	pieces := h.puts[key]
	delete(h.puts, key)
	if r == nil || r.inbox == nil {
		h.w.pools.releaseAll(pieces)
		return
	}
	i, recv, hold, ok := r.inbox.Take(r.mem.c.rankOf(last.src), last.psn, last.all)
	switch {
	case !ok:
		h.w.pools.releaseAll(pieces)
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
			at := r.base + k.off - first
			if recv.Apart {
				r.mem.placeApart(at+recv.Off, at+recv.Base, k.data)
			} else {
				r.mem.place(at+recv.Off, k.data, mode)
			}
		}
	}
	h.w.pools.releaseAll(pieces)
}

// act executes the actions of the node. The caller has changed the node's state, so its timer may have
// moved even without actions.
func (h *host) act() {
	if h.acting {
		return // the running call of act sees the new actions
	}
	h.acting = true
	h.backlog.known = false
	for acts := h.node.Actions(); len(acts) > 0; acts = h.node.Actions() {
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
	h.catchUp()
	h.timerAt = never
	if h.stopped() {
		h.timerDue = true
		return
	}
	h.runTimer()
}

// runTimer runs the node's timers. Datagrams in the receive queue are not lost.
func (h *host) runTimer() {
	if h.queue.len() > 0 {
		h.node.Queued(ns(h.w.now))
	}
	h.node.Timer(ns(h.w.now))
	h.act()
}

// stop stops the processor for a time. Arriving packets wait, and the NIC continues.
func (h *host) stop(d int64) {
	h.catchUp()
	h.stalled = max(h.stalled, h.w.now+d)
	h.wakeBy(h.stalled)
}

// wakeBy schedules wake at a time or earlier.
func (h *host) wakeBy(at int64) {
	if at < h.wakeAt {
		h.wakeAt = at
		h.w.push(at, evWake, int32(h.id), nil)
	}
}

// wake runs when the receive worker has finished a datagram or a batch, or when the processor runs
// again.
func (h *host) wake() {
	w := h.w
	if w.now >= h.wakeAt {
		h.wakeAt = never
	}
	h.catchUp()
	if h.dead {
		return
	}
	if h.stopped() {
		h.wakeBy(h.stalled)
		return
	}
	control := h.control
	h.control = nil
	for _, e := range control {
		h.handle(e)
	}
	for _, c := range h.calls {
		h.start(c)
	}
	h.calls = h.calls[:0]
	for h.queue.len() > 0 && w.now >= h.workUntil {
		n := h.take()
		h.reportDrained()
		if w.recvCost > 0 {
			h.workUntil = w.now + int64(n)*w.recvCost
		}
	}
	if h.queue.len() > 0 {
		h.wakeBy(max(h.workUntil, w.now))
	}
	if h.timerDue {
		h.timerDue = false
		h.runTimer()
	}
	h.rearm()
}
