package datapath

import (
	"errors"
	"log/slog"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/allcast/allcast/internal/fabric"
	"github.com/allcast/allcast/internal/inc"
	"github.com/allcast/allcast/internal/mcast"
	"github.com/allcast/allcast/internal/place"
	"github.com/allcast/allcast/internal/settings"
	"github.com/allcast/allcast/internal/step"
	"github.com/allcast/allcast/internal/wire"
)

// Config describes the network that a Datapath works on.
type Config struct {
	Size      int
	Multicast fabric.Multicast // nil: the network has none
	Layout    wire.Layout
	Secret    []byte // of the job, for tokens and keys
	settings.Protection

	Aggregators fabric.Aggregators // nil: the job has none
	PortTraffic func() PortTraffic // counters of Aggregators; any goroutine may call it; nil: not known
	Tree        *inc.Tree          // of the aggregators

	Cores  int   // processors that workers may keep busy; 0: as many as Go uses
	Pin    []int // processors that workers are bound to; nil: none
	Logger *slog.Logger
	Clock  func() step.Time // of the node
}

// A Datapath moves the bytes of one process.
type Datapath struct {
	Memory  Memory
	Polling Polling
	Probes  Probes
	Credit  Credit

	cfg     Config
	sink    Sink
	caps    fabric.Capabilities
	rel     fabric.Reliable
	protect protection
	ops     map[fabric.OpKey]*Operation // from StartRound to Release or Quiesced, owned by control's goroutine
	copies  map[fabric.OpKey]*Operation // eager operations from Release to Forget, owned by control's goroutine
	early   registry[uint32, *earlyGroup]
	recvs   []*receiver     // by stream of the network
	linger  linger          // of the leader, for all workers that it runs
	sends   []*sender       // send workers; empty: the network has no multicast
	pollers []fabric.Poller // of further receive workers; the first one has Poller

	subgroups int // of the network

	reads     registry[uint64, *read]            // that peers have not answered yet
	lastRead  uint64                             // id, owned by control's goroutine
	transfers registry[fabric.OpKey, *Operation] // open point-to-point operations
	scratch   scratch                            // memory of sums that pass through
	inc       *aggregation                       // nil: the job has no aggregators
	heard     []atomic.Int64                     // by rank: when data last came from it; 0: never

	workers workers

	refused  atomic.Uint64 // multicasts that the network refused to send
	repaired atomic.Uint64 // fetched bytes
}

// Credit counts the datagrams that left the receive queues, for the node's flow control.
type Credit struct {
	Taken      place.Taken // by receive workers
	ByKernel   place.Taken // by the kernel
	byKernel   *place.Count
	flushAfter uint32 // chunks per report, limited so that credit flows while data keeps coming
}

// workers are the goroutines of the receive workers and the send workers.
type workers struct {
	sync.WaitGroup
	pinned atomic.Int32 // workers bound to a processor
}

// New returns a Datapath that reports to sink. It moves nothing before Start.
func New(cfg Config, sink Sink) *Datapath {
	d := &Datapath{
		cfg: cfg, sink: sink, ops: map[fabric.OpKey]*Operation{},
		copies: map[fabric.OpKey]*Operation{}, early: newRegistry[uint32, *earlyGroup](),
		heard:  make([]atomic.Int64, cfg.Size),
		Probes: newProbes(cfg.Secret), reads: newRegistry[uint64, *read](),
		transfers: newRegistry[fabric.OpKey, *Operation](),
	}
	d.Polling.Alone = runtime.GOMAXPROCS(0) == 1
	d.scratch.alloc = d.Memory.allocPlain
	d.Credit.byKernel = d.Credit.ByKernel.New()
	d.protect.tokens = newTokens(cfg.Secret)
	if mc := cfg.Multicast; mc != nil {
		d.caps, d.subgroups = mc.Capabilities(), mc.Subgroups()
		d.protect.init(cfg, &d.caps)
		d.Credit.flushAfter = uint32(max(1, min(d.caps.Room/8, 4*d.caps.Batch)))
	}
	d.Memory.placed = d.caps.Allocator
	return d
}

// Start starts the workers. Control does not run before Start returns.
func (d *Datapath) Start(rel fabric.Reliable) {
	d.rel, d.Memory.plain = rel, rel.Allocator
	d.startAggregation()
	mc := d.cfg.Multicast
	if mc == nil {
		return
	}
	cores := d.cfg.Cores
	if limit := runtime.GOMAXPROCS(0); cores <= 0 || cores > limit {
		cores = limit
	}
	for i := range min(cores, mc.Subgroups()) {
		d.sends = append(d.sends, newSender(d, mc, i))
	}
	d.Polling.send, d.Probes.send = d.sends[0], d.probe
	d.addPollers(min(cores, mc.Streams()) - 1)
	d.workers.Add(len(d.sends) + mc.Streams())
	for _, s := range d.sends {
		go s.run()
	}
	d.linger = newLinger(d.caps.Batch, d.caps.Room)
	for stream := range mc.Streams() {
		d.recvs = append(d.recvs, newReceiver(d, stream, mc.Receiver(stream)))
	}
	for _, r := range d.recvs {
		r.start()
	}
}

// addPollers makes n pollers for further receive workers, or fewer if that fails.
func (d *Datapath) addPollers(n int) {
	if d.caps.Poller == nil || d.caps.NewPoller == nil || d.caps.Placer != nil {
		return
	}
	for range n {
		p, err := d.caps.NewPoller()
		if err != nil {
			d.cfg.Logger.Warn("fewer receive workers than processors", "workers", 1+len(d.pollers), "err", err)
			return
		}
		d.pollers = append(d.pollers, p)
	}
}

// poller is the poller that serves a stream of the network; nil: the stream has a goroutine of its own.
func (d *Datapath) poller(stream int) fabric.Poller {
	if i := stream % (1 + len(d.pollers)); i > 0 {
		return d.pollers[i-1]
	}
	return d.caps.Poller
}

// sender is the send worker of a stream of the network.
func (d *Datapath) sender(stream int) *sender {
	return d.sends[stream%d.subgroups%len(d.sends)]
}

// stream is the stream of the network that carries a stream of an operation. The operation may use
// fewer subgroups than the network has.
func (d *Datapath) stream(g *mcast.Geometry, stream int) int {
	return stream/g.Subgroups()*d.subgroups + g.Subgroup(stream)
}

// Watch makes the poller look for chunks that the kernel has placed.
func (d *Datapath) Watch() error {
	if d.caps.Placer == nil {
		return nil
	}
	return d.caps.Placer.Watch(d.look)
}

// Interrupt closes the multicast side: a worker that waits for the network answers now.
func (d *Datapath) Interrupt() {
	if mc := d.cfg.Multicast; mc != nil {
		_ = mc.Close()
	}
}

// Close ends the workers and closes the network. All operations have ended, and Interrupt was called.
func (d *Datapath) Close() {
	d.scratch.close()
	d.inc.close()
	_ = d.rel.Close()
	for _, s := range d.sends {
		close(s.stop)
	}
	for _, r := range d.recvs {
		r.command(command{kind: commandStop}, r.poller != nil)
	}
	d.workers.Wait()
	for _, p := range d.pollers {
		_ = p.Close()
	}
	if p := d.Poller(); p != nil {
		_ = p.Close()
	}
	if d.caps.Placer != nil {
		_ = d.caps.Placer.Close()
	}
}

// Poller polls both sides of the network; nil: the sides serve themselves.
func (d *Datapath) Poller() fabric.Poller {
	if d.rel.Poller != nil {
		return d.rel.Poller
	}
	return d.caps.Poller
}

// Caps are the capabilities of the multicast side, less what seals take; zero if there is none.
func (d *Datapath) Caps() fabric.Capabilities { return d.caps }

// Pending reports whether received datagrams wait for a worker that has not had its turn.
func (d *Datapath) Pending() bool {
	return d.unseen() || slices.ContainsFunc(d.recvs, (*receiver).pending)
}

// HeardAt is when data last came from a rank, by the node's clock; 0: never.
func (d *Datapath) HeardAt(rank int) step.Time { return step.Time(d.heard[rank].Load()) }

// hear notes that a rank is alive: data came from it. Its next message may arrive much later.
func (d *Datapath) hear(rank int) {
	if rank >= 0 && rank < len(d.heard) {
		d.heard[rank].Store(int64(max(1, d.cfg.Clock())))
	}
}

// sendFailed counts a multicast that the network refused, and logs the first one.
func (d *Datapath) sendFailed(err error) {
	if errors.Is(err, fabric.ErrClosed) {
		return
	}
	if d.refused.Add(1) == 1 {
		d.cfg.Logger.Error("multicast could not be sent; other ranks will fetch the missing chunks", "err", err)
	}
}

// Counters count what a Datapath did.
type Counters struct {
	McastBytes    uint64 // multicast, headers included
	McastChunks   uint64
	Placed        uint64 // chunks received by multicast
	Copied        uint64 // of these, chunks that were not received in place
	Corrupt       uint64 // datagrams changed on the way, or forged
	Dropped       uint64 // datagrams that a full receive queue, or an injected fault, dropped here
	Malformed     uint64 // foreign datagrams without a header
	RepairedBytes uint64 // fetched
	Refused       uint64 // multicasts that the network refused to send
	QueueFull     uint64 // sends that the queue of the sender's own interface dropped; they were repeated
	IncCounters
	fabric.ReliableStats
}

// IncCounters count the traffic with aggregators.
type IncCounters struct {
	Contributions  uint64 // datagrams sent to the aggregator
	IncBytes       uint64 // of these, headers included
	Unsent         uint64 // contributions that the network did not take
	SumsDropped    uint64 // sums that a full receive queue dropped
	Sums           uint64 // chunks received from aggregators
	SumsTwice      uint64 // sums that came again
	SumsLate       uint64 // sums that came after the inputs had been fetched
	SumsStale      uint64 // sums without an open operation, and forged ones
	SumsForeign    uint64 // sums that their operation does not expect
	FetchedInBytes uint64 // inputs fetched from other ranks because aggregators did not add them
}

// Counters returns the counters. Any goroutine may call it.
func (d *Datapath) Counters() (c Counters) {
	c.RepairedBytes, c.Refused = d.repaired.Load(), d.refused.Load()
	for _, s := range d.sends {
		c.McastBytes += s.bytes.Load()
		c.McastChunks += s.sent.Load()
		c.QueueFull += s.queueFull.Load()
	}
	for _, r := range d.recvs {
		c.Placed += r.placed.Load()
		c.Copied += r.copied.Load()
		c.Corrupt += r.corrupt.Load()
		rx := r.rx.Stats()
		c.Dropped += rx.Dropped
		c.Malformed += rx.Malformed
	}
	if d.caps.Placer != nil {
		c.Dropped += d.caps.Placer.Lost()
	}
	c.IncCounters = d.inc.counters()
	c.ReliableStats = d.rel.Stats()
	return c
}

// retryAfter is how long a worker waits after the network failed.
const retryAfter = 100 * time.Millisecond
