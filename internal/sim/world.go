package sim

import (
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
	cfg    Config
	g      *topology.Graph
	layout wire.Layout
	rng    *rand.Rand
	now    int64
	heap   eventHeap
	events int64
	pools  pools
	links  []link
	trees  []*topology.Tree
	hosts  []*host
	calls  map[uint64]*collective
	inc    *incTree
	step   *trainingStep // nil for single collectives
	buffer int64         // input buffer size: inputBuffer, or room for a few very large chunks

	reductions map[opKey]*collective // by operation
	starts     []start
	pcap       *pcap.Writer
	packet     uint32

	loss       float64 // probability of losing a datagram, from both options
	recvCost   int64
	gather     int64 // time for which receive workers let datagrams gather
	late       int64 // mean delay between receive workers and control threads
	noise      int64
	retransmit int64
	slotTime   int64 // time of one chunk on a host link
	lifetime   int64 // age above which arriving datagrams are dropped
	straggle   int64 // maximum delay of a straggling datagram
	drains     []drain

	reportAfter uint32 // number of chunks at which a report is due
	idleReports []*mcast.Report
	lastArrival int64 // last time at which a multicast datagram reached a host, or would have

	pending   int // unfinished calls of living ranks
	lingering int // rounds that are not closed
	failures  int
	wrong     int
	dropped   int64
	violation string // first broken rule

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
		return nil, fmt.Errorf("%w: %w", ErrConfig, err)
	}
	flow, err := mcast.ParseFlow(cfg.Flow)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrConfig, err)
	}
	g := cfg.Topology
	w := &world{
		cfg: cfg, g: g, layout: layout, rng: rand.New(rand.NewPCG(cfg.Seed, 0xa11ca57)),
		calls: map[uint64]*collective{}, reductions: map[opKey]*collective{},
		inc: newIncTree(g), buffer: max(inputBuffer, 4*int64(cfg.Chunk+udHeader)),
		loss:     1 - (1-cfg.Loss)*(1-cfg.LossAll),
		recvCost: cfg.RecvCost.Nanoseconds()*1000 + cfg.pace, noise: cfg.Noise.Nanoseconds() * 1000,
		gather: cfg.Gather.Nanoseconds() * 1000, late: cfg.Late.Nanoseconds() * 1000,
	}
	w.links = make([]link, len(g.Links))
	for i, l := range g.Links {
		w.links[i] = link{
			id: topology.LinkID(i), to: l.To, toHost: g.IsHost(l.To), host: -1,
			psByte: 8e12 / (cfg.Rate * l.Multiple), latency: cfg.Latency.Nanoseconds() * 1000,
		}
		if g.IsHost(l.From) {
			w.links[i].host, w.links[i].fair = int32(l.From), &fairQueue{}
		}
	}
	for s := range min(max(1, cfg.Subgroups), g.Trees()) {
		w.trees = append(w.trees, g.Tree(s))
	}
	w.slotTime = int64(float64(cfg.Chunk+udHeader) * 8e12 / cfg.Rate)
	w.reportAfter = uint32(max(1, min(w.room()/8, 64)))
	path := w.longestPath()
	// Switches drop packets above an age of about a second, as on InfiniBand. That is far more than
	// full buffers at every hop take to drain.
	w.lifetime = 1e12
	if cfg.Straggle > 0 {
		w.straggle = straggleAlphas * w.alpha(path)
	}
	// A reliable sender notices a loss after a few round trips.
	w.retransmit = 4*path + 20*w.slotTime
	for i := range g.Hosts {
		h := &host{
			w: w, id: i, timerAt: never, wakeAt: never, regions: map[opKey]*region{},
			puts: map[putKey][]*packet{}, early: map[opKey][]*packet{}, inOrder: map[int]int64{},
		}
		cfg := w.nodeConfig(i, flow, path)
		cfg.Taken = &h.takenCount
		h.node = node.New(0, cfg)
		w.hosts = append(w.hosts, h)
	}
	if cfg.Pcap != nil {
		if w.pcap, err = pcap.NewWriter(cfg.Pcap); err != nil {
			return nil, err
		}
	}
	return w, nil
}

// room returns the number of datagrams that a receive queue holds.
func (w *world) room() uint64 {
	if w.cfg.RecvQueue > 0 {
		return max(1, uint64(w.cfg.RecvQueue)/uint64(w.cfg.Chunk+udHeader))
	}
	return 8192 // value of the paper
}

// report returns an empty report.
func (w *world) report() *mcast.Report {
	if n := len(w.idleReports); n > 0 {
		r := w.idleReports[n-1]
		w.idleReports = w.idleReports[:n-1]
		return r
	}
	return &mcast.Report{Runs: make([]mcast.PlacedRun, 0, mcast.MaxRuns)}
}

func (w *world) recycle(r *mcast.Report) {
	clear(r.Runs)
	*r = mcast.Report{Runs: r.Runs[:0]}
	w.idleReports = append(w.idleReports, r)
}

// nodeConfig returns the configuration that a fabric would derive for its node.
func (w *world) nodeConfig(rank int, flow mcast.Flow, path int64) node.Config {
	alpha := ns(w.alpha(path))
	return node.Config{
		Rank: rank, Size: w.g.Hosts, Timeout: step.Time(w.cfg.Timeout.Nanoseconds()),
		Deadline: step.Time(w.cfg.Deadline.Nanoseconds()),
		Flow:     flow, Room: w.room(), Batch: 16, Overhead: udHeader, Layout: w.layout,
		Eager: node.EagerLimit, Digest: w.cfg.Digest,
		Limits: mcast.Limits{LinkRate: w.cfg.Rate / 8e9, Alpha: alpha, MinAlpha: alpha / 4, MaxAlpha: 1000 * alpha},
	}
}

// alpha exceeds the transit time of a datagram that is displaced by 16 places.
func (w *world) alpha(path int64) int64 { return 2*path + 32*w.slotTime }

// straggleAlphas is the maximum delay of a straggling datagram in alphas. Some of these datagrams
// arrive before the cutoff, some during the fetch, and some after it.
const straggleAlphas = 8

func (w *world) push(at int64, kind eventKind, id int32, pkt *packet) { w.heap.push(at, kind, id, pkt) }

// displacement returns a delay that displaces a datagram by 1 to 16 places in a stream at line rate.
func (w *world) displacement() int64 { return (1 + w.rng.Int64N(16)) * w.slotTime }

func (w *world) longestPath() int64 {
	hops := 0
	for _, to := range []int{1, w.g.Hosts / 2, w.g.Hosts - 1} {
		hops = max(hops, w.g.Hops(0, to%w.g.Hosts))
	}
	return int64(hops) * w.cfg.Latency.Nanoseconds() * 1000
}

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
		w.starts = append(w.starts, start{at(h), h, c})
		w.push(at(h), evStart, int32(len(w.starts)-1), nil)
		w.pending++
	}
}

// loop runs until every call has ended and no operation lingers, or until limit.
func (w *world) loop(limit int64) {
	for _, h := range w.hosts {
		h.rearm() // hosts that make no call send heartbeats as well
	}
	for len(w.heap.ev) > 0 {
		if w.pending == 0 && (w.lingering == 0 || w.failures > 0) {
			return
		}
		e := w.heap.pop()
		if e.at > limit {
			return
		}
		w.now = e.at
		w.events++
		switch e.kind {
		case evArrive:
			w.arrive(&w.links[e.id], e.pkt)
		case evLink:
			w.links[e.id].waking = false
			w.send(&w.links[e.id])
		case evSent:
			h := w.hosts[e.id]
			switch {
			case h.dead:
				w.pools.release(e.pkt)
			case w.now < h.stalled:
				h.control = append(h.control, e)
			default:
				h.batchSent(e.pkt)
			}
		case evDeliver:
			h := w.hosts[e.id]
			switch {
			case h.dead:
				w.pools.release(e.pkt)
			case e.pkt.kind == pktChunk:
				h.receive(e.pkt)
			default:
				h.reliable(e.pkt)
			}
		case evTimer:
			w.hosts[e.id].timer()
		case evWake:
			w.hosts[e.id].wake()
		case evStart:
			w.startCall(w.starts[e.id])
		case evStall:
			w.stall(w.cfg.Stalls[e.id])
		case evDetour:
			w.detour(w.hosts[e.id])
		case evCrash:
			w.crash(w.cfg.Crashes[e.id])
		case evDrain:
			if h := w.hosts[w.drains[e.id].host]; !h.dead {
				h.awaitQueue(w.drains[e.id])
			}
		case evReport, evClaim:
			if h := w.hosts[e.id]; w.now < h.stalled {
				h.control = append(h.control, e)
			} else {
				h.handleNotified(e.kind)
			}
		case evStep:
			w.step.handleEvent(int(e.id))
		}
	}
}

func (w *world) startCall(s start) {
	h := w.hosts[s.host]
	if h.dead {
		return
	}
	if w.now < h.stalled || len(h.calls) > 0 {
		h.calls = append(h.calls, s.c) // a stopped processor makes its calls later, in order
		h.wakeBy(h.stalled)
		return
	}
	h.start(s.c)
}

func (w *world) stall(s Stall) {
	h := w.hosts[s.Rank]
	h.stalled = max(h.stalled, w.now+s.For.Nanoseconds()*1000)
	h.wakeBy(h.stalled)
}

// detourShare is the share of time that a processor spends on noise. Well-kept cluster nodes have less;
// the comparison of algorithms matters, not the absolute value.
const detourShare = 0.01

// detour stops a host for a moment and schedules the next detour. Arriving packets wait, and the NIC
// continues.
func (w *world) detour(h *host) {
	if h.dead {
		return
	}
	mean := float64(w.cfg.Detour.Nanoseconds()) * 1000
	h.stalled = max(h.stalled, w.now+int64(w.rng.ExpFloat64()*mean))
	h.wakeBy(h.stalled)
	w.push(h.stalled+w.untilDetour(), evDetour, int32(h.id), nil)
}

func (w *world) untilDetour() int64 {
	mean := float64(w.cfg.Detour.Nanoseconds()) * 1000
	return int64(w.rng.ExpFloat64() * mean * (1 - detourShare) / detourShare)
}

func (w *world) crash(c Crash) {
	h := w.hosts[c.Rank]
	if h.dead {
		return
	}
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
	w.packet++
	switch k.kind {
	case pktChunk:
		w.pcap.Datagram(at, k.src, k.sub, k.imm, w.packet, k.pay.data, k.bytes)
	case pktMessage:
		w.pcap.Message(at, k.src, k.dst, w.packet, k.msg, len(k.msg))
	case pktRead:
		w.pcap.ReadRequest(at, k.src, k.dst, w.packet, uint64(k.psn), k.n*uint32(w.cfg.Chunk))
	case pktPut, pktSum:
		w.pcap.Message(at, k.src, k.dst, w.packet, k.pay.data, k.bytes)
	case pktResponse:
		w.pcap.ReadResponse(at, k.src, k.dst, w.packet, k.pay.data, k.bytes)
	}
}
