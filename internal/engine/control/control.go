package control

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/allcast/allcast/internal/engine/datapath"
	"github.com/allcast/allcast/internal/engine/observer"
	"github.com/allcast/allcast/internal/engine/queue"
	"github.com/allcast/allcast/internal/fabric"
	"github.com/allcast/allcast/internal/inc"
	"github.com/allcast/allcast/internal/mcast"
	"github.com/allcast/allcast/internal/node"
	"github.com/allcast/allcast/internal/settings"
	"github.com/allcast/allcast/internal/step"
	"github.com/allcast/allcast/internal/wire"
)

// Config describes what an engine runs on.
type Config struct {
	observer.Config
	settings.Protection
	settings.Transfer
	settings.Liveness
	Multicast fabric.Multicast // nil: the network has none
	MinRoom   int              // smallest Capabilities.Room of all ranks; 0: all have the same
	Reliable  func(fabric.Handler) (fabric.Reliable, error)
	Secret    []byte // of the job, for tokens and keys
	Reduction Reduction
	Cores     int // processors that workers may keep busy; 0: as many as Go uses
}

// Reduction describes the aggregators of the job.
type Reduction struct {
	Aggregators fabric.Aggregators          // nil: there are none
	Traffic     func() datapath.PortTraffic // counters of Aggregators; any goroutine may call it
	Tree        *inc.Tree
	Chunk       int             // bytes of a chunk; the same on all ranks
	State       inc.Aggregation // of this rank's aggregators; SetAggregation changes it
	Warned      bool            // the log says already that they cannot be used
	Retry       time.Duration   // time for which no call uses aggregators that did not answer; 0: inc.RetryAfter
}

// ErrClosed is the error of calls after Close.
var ErrClosed = errors.New("closed")

// Slack before silence means loss: until the job's own round trips are known, and at least. A worker
// that has not had its turn on a busy machine needs no slack: see timer.
const (
	firstAlpha = step.Millisecond
	minAlpha   = 50 * step.Microsecond
)

// A lifecycle is the state of a Control. It only moves on.
type lifecycle int32

const (
	running lifecycle = iota
	closing           // Close: no call begins, and calls under way fail
	stopped           // the loop discards its tasks
)

// Control runs the node of one process.
type Control struct {
	cfg    Config
	start  time.Time
	layout wire.Layout
	node   *node.Node
	data   *datapath.Datapath
	obs    *observer.Observer
	rel    fabric.Reliable
	poller fabric.Poller // nil: the network serves itself
	comms  comms

	tasks     *queue.Queue[task]
	draining  atomic.Bool // a goroutine runs the loop
	state     atomic.Int32
	over      chan struct{} // closed when the loop has stopped
	closeOnce sync.Once
	reports   sync.WaitGroup // failed calls that other ranks hear of before the caller does
	clock     clock
	spin      time.Duration // how long a waiting goroutine polls before it sleeps; its own

	loop
}

// loop is the state that only the loop touches.
type loop struct {
	calls      map[uint64]*call
	lastReq    uint64
	early      early
	agreements map[uint64]*agreement
	fault      error // why this rank cannot go on; nil if it can
	msg        []byte
	queuedAt   step.Time // since when datagrams wait and none was placed; 0: none wait
	whenIdle   func()
	leaving    chan struct{} // closed when another rank has left; nil: this process stays

	noAggregation bool // the log says that reductions go point to point
}

// New starts a Control.
func New(cfg Config) (*Control, *observer.Observer, error) {
	layout, err := wire.NewLayout(wire.DefaultPSNBits)
	if err != nil {
		return nil, nil, err
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	c := &Control{
		cfg: cfg, start: time.Now(), layout: layout, tasks: queue.New[task](), over: make(chan struct{}), spin: maxSpin,
		comms: newComms(), loop: loop{
			calls: map[uint64]*call{}, early: newEarly(cfg.Size), agreements: map[uint64]*agreement{},
		},
	}
	c.clock.at = step.Never
	c.clock.due.Store(int64(step.Never))
	c.clock.timer = time.AfterFunc(time.Hour, func() { c.push(c.newTask(taskTick)) })
	c.obs = observer.New(cfg.Config, ErrClosed, c.now)
	c.data = datapath.New(datapath.Config{
		Size: cfg.Size, Multicast: cfg.Multicast, Layout: layout, Secret: cfg.Secret, Protection: cfg.Protection,
		Aggregators: cfg.Reduction.Aggregators, PortTraffic: cfg.Reduction.Traffic, Tree: cfg.Reduction.Tree,
		Cores: cfg.Cores, Pin: cfg.Pin,
		Logger: cfg.Logger, Clock: c.now,
	}, (*upcalls)(c))
	c.node = node.New(0, c.nodeConfig())
	c.node.SetAggregation(0, cfg.Reduction.State)
	c.noAggregation = cfg.Reduction.Warned
	c.obs.Attach(c.node, (*view)(c))
	// The first communicators exist before any peer can reach this rank: a message for an unknown
	// communicator is lost.
	members := make([]int, cfg.Size)
	for rank := range members {
		members[rank] = rank
	}
	for id, name := range []string{World: "world", Lifecycle: "exit"} {
		if err := c.addComm(uint32(id), name, members); err != nil {
			return nil, nil, err
		}
	}
	if err := c.connect(); err != nil {
		return nil, nil, err
	}
	c.push(c.newTask(taskTick))
	if err := c.data.Watch(); err != nil {
		_ = c.Close()
		return nil, nil, err
	}
	return c, c.obs, nil
}

func (c *Control) nodeConfig() node.Config {
	cfg, caps := &c.cfg, c.data.Caps()
	nc := node.Config{
		Rank: cfg.Rank, Size: cfg.Size, Timeout: step.Time(cfg.Timeout), Deadline: step.Time(cfg.Deadline),
		Layout: c.layout, Eager: node.EagerLimit, Digest: cfg.Integrity, Turned: c.obs.TracePhase,
		Limits: mcast.Limits{LinkRate: cfg.Rate / 8e9, Alpha: firstAlpha, MinAlpha: minAlpha, MaxAlpha: step.Second},
		Places: contributions, Patience: patience, Retry: step.Time(cfg.Reduction.Retry),
	}
	if cfg.Multicast == nil {
		return nc
	}
	nc.Groups, nc.MinRoom = node.GroupsShared, uint64(cfg.MinRoom)
	if caps.Groups != nil {
		nc.Groups = node.GroupsOwn
	}
	nc.Flow, nc.Room, nc.Taken = mcast.FlowCredit, uint64(max(1, caps.Room)), &c.data.Credit.Taken
	if caps.Placer != nil {
		nc.Offload, nc.ByKernel = uint64(caps.Placer.Room()), &c.data.Credit.ByKernel
	}
	nc.EagerChunks = c.eagerChunks()
	nc.Super, nc.Overhead = uint32(max(1, caps.Batch)), caps.Overhead
	nc.Batch = 2 * nc.Super
	return nc
}

// eagerChunks is the number of chunks up to which multicasts are eager; the same on all ranks. With
// Integrity, ranks compare what they received in the final handshake, which eager multicasts do without.
func (c *Control) eagerChunks() uint32 {
	caps := c.data.Caps()
	if !caps.Eager || c.cfg.Integrity {
		return 0
	}
	return mcast.EagerChunks(uint64(cmp.Or(c.cfg.MinRoom, caps.Room)))
}

// connect opens the reliable side and starts the datapath. Peers may reach this rank before it can
// answer, so nothing runs the loop meanwhile.
func (c *Control) connect() (err error) {
	c.draining.Store(true)
	if c.rel, err = c.cfg.Reliable(handler{c.data, (*upcalls)(c)}); err != nil {
		c.clock.timer.Stop()
		if p := c.data.Caps().Poller; p != nil {
			_ = p.Close()
		}
		return err
	}
	c.data.Start(c.rel)
	c.poller = c.data.Poller()
	c.draining.Store(false)
	return nil
}

// now is the node's clock.
func (c *Control) now() step.Time { return step.Time(time.Since(c.start)) }

func (c *Control) is(l lifecycle) bool { return lifecycle(c.state.Load()) == l }

// Caps are the capabilities of the multicast side; zero if there is none.
func (c *Control) Caps() fabric.Capabilities { return c.data.Caps() }

// Alloc returns n cleared bytes outside of Go's heap, which whoever receives writes directly. The memory
// is valid until Free, also after Close.
func (c *Control) Alloc(n int) ([]byte, error) {
	switch {
	case n < 0:
		return nil, fmt.Errorf("%w: %d bytes", ErrCall, n)
	case !c.is(running):
		return nil, ErrClosed
	case n == 0:
		return []byte{}, nil
	}
	return c.data.Memory.Alloc(n)
}

// Free gives back what Alloc returned. The caller does not use it any more.
func (c *Control) Free(b []byte) error { return c.data.Memory.Free(b) }

// view is Control as its observer sees it: an observer.View.
type view Control

// Submit runs f from a goroutine of its own: whoever submits may have to run the loop, which may be stuck.
func (v *view) Submit(f func()) { go (*Control)(v).submit(f) }

func (v *view) Stopped() <-chan struct{}    { return v.over }
func (v *view) Calls() int                  { return len(v.calls) }
func (v *view) Counters() datapath.Counters { return v.data.Counters() }

func (v *view) CommName(id uint32) string {
	if g := v.comms.group(id); g != nil {
		return g.Name
	}
	return ""
}

func (v *view) Call(req uint64) *observer.Call {
	if k := v.calls[req]; k != nil {
		return &k.info
	}
	return nil
}
