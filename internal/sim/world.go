package sim

import (
	"cmp"
	"fmt"
	"math/rand/v2"

	"github.com/allcast/allcast/internal/mcast"
	"github.com/allcast/allcast/internal/node"
	"github.com/allcast/allcast/internal/pcap"
	"github.com/allcast/allcast/internal/step"
	"github.com/allcast/allcast/internal/topology"
	"github.com/allcast/allcast/internal/wire"
)

// world is a running simulation.
type world struct {
	eventQueue
	parameters
	progress
	accounting
	cfg     Config
	g       *topology.Graph
	layout  wire.Layout
	rng     *rand.Rand
	now     int64
	pools   pools
	links   []link // those of the graph, then one per foreign flow
	trees   []*topology.Tree
	hosts   []*host
	inc     *incTree // nil without reductions by aggregators
	foreign []*foreignFlow
	calls   map[uint64]*collective
	starts  []start
	drains  []drain
	step    *trainingStep // nil for single collectives
	pcap    *pcap.Writer
}

// parameters holds values that the Config determines. Times are in ps.
type parameters struct {
	loss        float64 // probability of losing a datagram, from both options
	buffer      int64   // input buffer size: inputBuffer, or room for a few very large chunks
	recvCost    int64
	gather      int64 // time for which receive workers let datagrams gather
	late        int64 // mean delay between receive workers and control threads
	noise       int64
	reaction    int64
	detour      float64 // mean length of operating-system noise
	path        int64   // latency of the longest path
	slotTime    int64   // time of one chunk on a host link
	alpha       int64   // more than the transit time of a datagram that is displaced by 16 places
	retransmit  int64
	lifetime    int64  // age above which arriving datagrams are dropped
	straggle    int64  // maximum delay of a straggling datagram
	postpones   bool   // whether receive workers may take datagrams late: see backlog
	room        uint64 // number of datagrams that a receive queue holds
	reportAfter uint32 // number of chunks at which a report is due
	eagerChunks uint32 // number of chunks up to which multicasts are eager; 0 for none
}

// progress says what a run waits for, and what went wrong.
type progress struct {
	events    int64
	pending   int // unfinished calls of living ranks
	lingering int // rounds that are not closed
	failures  int
	left      bool // whether all hosts have closed their communicators
	wrong     int
	violation string // first broken rule
}

// accounting counts chunks. Counts per chunk cover a single call only.
type accounting struct {
	dropped       int64
	lastArrival   int64 // last time at which a multicast datagram reached a host, or would have
	crossings     *crossings
	ownerReads    []uint16 // by chunk: reads served by its owner
	rootFetches   int64
	maxOwnerReads int
}

// start is a call that a host makes at a given time.
type start struct {
	at   int64
	host int
	c    *collective
}

func newWorld(cfg Config) (*world, error) {
	layout, err := wire.NewLayout(cfg.PSNBits)
	if err != nil {
		return nil, badConfig("%w", err)
	}
	flow, err := mcast.ParseFlow(cfg.Flow)
	if err != nil {
		return nil, badConfig("%w", err)
	}
	g := cfg.Topology
	w := &world{
		eventQueue: newEventQueue(), cfg: cfg, parameters: cfg.parameters(), g: g, layout: layout,
		rng:   rand.New(rand.NewPCG(cfg.Seed, 0xa11ca57)),
		calls: map[uint64]*collective{}, links: make([]link, len(g.Links)),
	}
	for i, l := range g.Links {
		w.links[i] = link{
			id: topology.LinkID(i), to: l.To, toHost: g.IsHost(l.To), host: -1,
			psByte: 8e12 / (cfg.Rate * l.Multiple), latency: cfg.Latency.Nanoseconds() * 1000,
		}
		if g.IsHost(l.From) {
			w.links[i].host, w.links[i].fair = int32(l.From), &fairQueue{}
		}
	}
	w.addBackground()
	for s := range min(max(1, cfg.Subgroups), g.Trees()) {
		w.trees = append(w.trees, g.Tree(s))
	}
	nodes := w.nodeConfig(flow)
	for i := range g.Hosts {
		w.hosts = append(w.hosts, newHost(w, i, nodes))
	}
	if cfg.Pcap != nil {
		if w.pcap, err = pcap.NewWriter(cfg.Pcap); err != nil {
			return nil, err
		}
	}
	return w, nil
}

// straggleAlphas is the maximum delay of a straggling datagram in alphas. Some of these datagrams
// arrive before the cutoff, some during the fetch, and some after it.
const straggleAlphas = 8

func (cfg *Config) parameters() parameters {
	datagram := int64(cfg.Chunk + udHeader)
	p := parameters{
		loss:     1 - (1-cfg.Loss)*(1-cfg.LossAll),
		buffer:   max(inputBuffer, 4*datagram),
		recvCost: cfg.RecvCost.Nanoseconds()*1000 + cfg.pace,
		gather:   cfg.Gather.Nanoseconds() * 1000,
		late:     cfg.Late.Nanoseconds() * 1000,
		noise:    cfg.Noise.Nanoseconds() * 1000,
		reaction: cfg.Reaction.Nanoseconds() * 1000,
		detour:   float64(cfg.Detour.Nanoseconds()) * 1000,
		path:     int64(cfg.Topology.LongestPath()) * cfg.Latency.Nanoseconds() * 1000,
		slotTime: int64(float64(datagram) * 8e12 / cfg.Rate),
		// Switches drop packets above an age of about a second, as on InfiniBand. That is far more than
		// full buffers at every hop take to drain.
		lifetime: 1e12,
		room:     8192, // value of the paper
	}
	if cfg.RecvQueue > 0 {
		p.room = max(1, uint64(cfg.RecvQueue)/uint64(datagram))
	}
	p.reportAfter = uint32(max(1, min(p.room/8, 64)))
	if cfg.Tokens && !cfg.Digest { // digests travel in the final handshake
		p.eagerChunks = mcast.EagerChunks(p.room)
	}
	p.alpha = 2*p.path + 32*p.slotTime
	if cfg.Straggle > 0 {
		p.straggle = straggleAlphas * p.alpha
	}
	// Credit flows while chunks arrive, so there is no lull.
	p.postpones = !cfg.eager && cfg.Flow == "none" && p.recvCost == 0 && p.gather == 0 && p.late == 0
	p.retransmit = 4*p.path + 20*p.slotTime // a reliable sender notices a loss after a few round trips
	return p
}

// nodeConfig returns the configuration that a fabric would derive for its nodes.
func (w *world) nodeConfig(flow mcast.Flow) node.Config {
	alpha := ns(w.alpha)
	limits := mcast.Limits{LinkRate: w.cfg.Rate / 8e9, Alpha: alpha, MinAlpha: alpha / 4, MaxAlpha: 1000 * alpha}
	return node.Config{
		Size: w.g.Hosts, Timeout: step.Time(w.cfg.Timeout.Nanoseconds()),
		Deadline: step.Time(w.cfg.Deadline.Nanoseconds()),
		Flow:     flow, Room: w.room, Batch: 16, Overhead: udHeader, Layout: w.layout,
		Eager: node.EagerLimit, Digest: w.cfg.Digest, EagerChunks: w.eagerChunks,
		Limits: cmp.Or(w.cfg.limits, limits),
	}
}

// displacement returns a delay that displaces a datagram by 1 to 16 places in a stream at line rate.
func (w *world) displacement() int64 { return (1 + w.rng.Int64N(16)) * w.slotTime }

// violate records a broken rule of the contract between node and fabric.
func (w *world) violate(format string, args ...any) {
	if w.violation == "" {
		w.violation = fmt.Sprintf(format, args...)
	}
}

// call schedules a collective on all ranks of its communicator.
func (w *world) call(c *collective, at func(rank int) int64) {
	w.calls[c.req] = c
	for _, h := range c.members {
		w.callAt(at(h), h, c)
	}
}

func (w *world) callAt(at int64, host int, c *collective) {
	w.starts = append(w.starts, start{at, host, c})
	w.push(at, evStart, int32(len(w.starts)-1), nil)
	w.pending++
}

// loop runs until every call has ended and no operation lingers, or until limit.
func (w *world) loop(limit int64) {
	defer w.catchUp()
	for _, h := range w.hosts {
		h.rearm() // hosts that make no call send heartbeats as well
	}
	for w.pending > 0 || (w.lingering > 0 && w.failures == 0) {
		if w.pending == 0 {
			w.closeComms()
		}
		e, at, ok := w.pop()
		if !ok || at > limit {
			return
		}
		w.now = at
		if w.events++; w.events%progressEvents == 0 && w.cfg.Progress != nil {
			w.cfg.Progress(w.progressOf())
		}
		switch e.kind {
		case evArrive:
			w.arrive(&w.links[e.id], e.pkt)
		case evLink:
			w.links[e.id].waking = false
			w.send(&w.links[e.id])
		case evSent, evDeliver:
			h := w.hosts[e.id]
			switch {
			case h.dead:
				w.pools.release(e.pkt)
			case e.kind == evSent:
				h.onProcessor(e)
			case e.pkt.isDatagram():
				h.receive(e.pkt)
			default:
				h.reliable(e.pkt)
			}
		case evReport, evClaim, evSummed:
			w.hosts[e.id].onProcessor(e)
		case evSum:
			w.contribute(e.id, e.pkt)
		case evAggregator:
			w.handleAggregator(int(e.id))
		case evTimer:
			w.hosts[e.id].timer()
		case evWake:
			w.hosts[e.id].wake()
		case evStart:
			w.startCall(w.starts[e.id])
		case evStall:
			s := w.cfg.Stalls[e.id]
			w.hosts[s.Rank].stop(s.For.Nanoseconds() * 1000)
		case evDetour:
			w.makeDetour(w.hosts[e.id])
		case evCrash:
			w.crash(w.cfg.Crashes[e.id])
		case evDrain:
			if h := w.hosts[w.drains[e.id].host]; !h.dead {
				h.awaitQueue(w.drains[e.id])
			}
		case evForeign:
			w.sendForeign(e.id)
		case evStep:
			w.step.handleEvent(int(e.id))
		}
	}
}

// closeComms closes all communicators on all hosts, once. Eager operations linger until all ranks have finished
// them, which nobody would find out otherwise.
func (w *world) closeComms() {
	if w.left || w.eagerChunks == 0 {
		return
	}
	w.left = true
	for _, h := range w.hosts {
		if h.dead {
			continue
		}
		h.catchUp()
		for _, c := range h.node.Inspect() {
			if err := h.node.RemoveComm(ns(w.now), c.ID); err != nil {
				w.violate("rank %d could not leave: %v", h.id, err)
			}
		}
		h.act()
	}
}

func (w *world) startCall(s start) {
	h := w.hosts[s.host]
	switch {
	case h.dead:
	case h.stopped() || len(h.calls) > 0:
		h.calls = append(h.calls, s.c) // a stopped processor makes its calls later, in order
		h.wakeBy(h.stalled)
	default:
		h.start(s.c)
	}
}

// detourShare is the share of time that a processor spends on noise. Well-kept cluster nodes have less;
// the comparison of algorithms matters, not the absolute value.
const detourShare = 0.01

// makeDetour stops a host for a moment and schedules the next detour.
func (w *world) makeDetour(h *host) {
	if !h.dead {
		h.stop(int64(w.rng.ExpFloat64() * w.detour))
		w.push(h.stalled+w.untilDetour(), evDetour, int32(h.id), nil)
	}
}

func (w *world) untilDetour() int64 {
	return int64(w.rng.ExpFloat64() * w.detour * (1 - detourShare) / detourShare)
}

func (w *world) crash(c Crash) {
	h := w.hosts[c.Rank]
	if h.dead {
		return
	}
	h.catchUp()
	h.dead = true
	for _, c := range w.calls {
		if r := c.rankOf(h.id); r >= 0 && !c.ranks[r].ended {
			w.pending--
		}
	}
	w.failures++
	if !c.Reset {
		return
	}
	for _, p := range mcast.AppendPeers(nil, c.Rank, w.g.Hosts) {
		if peer := w.hosts[p]; !peer.dead {
			peer.catchUp()
			peer.node.PeerLost(ns(w.now), c.Rank)
			peer.act()
		}
	}
}

// capture records a packet that leaves a host.
func (w *world) capture(k *packet) {
	if w.pcap == nil {
		return
	}
	at := w.now / 1000
	switch k.kind {
	case pktChunk:
		w.pcap.Datagram(at, k.src, k.from.geo.Subgroup(k.stream), k.imm, k.bytes)
	case pktMessage:
		w.pcap.Message(at, k.src, k.dst, k.data)
	case pktPut, pktSum:
		w.pcap.Send(at, k.src, k.dst, k.bytes)
	case pktRead:
		w.pcap.ReadRequest(at, k.src, k.dst, uint64(k.psn), k.n*uint32(w.cfg.Chunk))
	case pktResponse:
		w.pcap.ReadResponse(at, k.src, k.dst, k.bytes)
	}
}
