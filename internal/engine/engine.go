package engine

import (
	"context"
	"errors"
	"log/slog"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/allcast/allcast/internal/fabric"
	"github.com/allcast/allcast/internal/mcast"
	"github.com/allcast/allcast/internal/node"
	"github.com/allcast/allcast/internal/observe"
	"github.com/allcast/allcast/internal/place"
	"github.com/allcast/allcast/internal/seal"
	"github.com/allcast/allcast/internal/settings"
	"github.com/allcast/allcast/internal/step"
	"github.com/allcast/allcast/internal/wire"
)

// Config is what an Engine runs on.
type Config struct {
	settings.Job
	settings.Protection
	settings.Transfer
	settings.Liveness
	Logger *slog.Logger // nil for none

	Multicast fabric.Multicast // nil: the network has none
	Reliable  func(fabric.Handler) (fabric.Reliable, error)
	Secret    []byte // of the job, for tokens and keys

	Who    observe.State       // of this process, for who inspects it
	Failed func(*observe.Dump) // is told of each failure, once; it may take its time; nil: nobody is

	// Watch, for tests, is told of phases and of turns that are passed on, while nothing
	// else happens here; nil: nobody is.
	Watch func(comm uint32, seq uint64, what string)
}

// ErrClosed is what calls get once Close was called.
var ErrClosed = errors.New("closed")

// An Engine is one process's part of a job.
type Engine struct {
	cfg    Config
	log    *slog.Logger
	start  time.Time
	layout wire.Layout
	node   *node.Node
	rel    fabric.Reliable
	caps   fabric.Capabilities
	poller fabric.Poller // of either side, closed by Close; nil: the sides serve themselves
	head   int           // bytes of a datagram's header
	tokens *tokens
	master *seal.Master // of operations' keys; nil: datagrams are not sealed
	sums   bool         // datagrams carry sums

	tasks      *queue
	running    atomic.Bool // somebody is at the tasks
	recvs      []*receiver
	send       *sender
	taken      place.Taken // datagrams that receive workers took,
	byKernel   place.Taken // and those that the kernel placed
	flushAfter uint32      // chunks that a receive worker reports at the latest: credit must flow while data keeps coming

	reads     reads
	probes    probes
	transfers transfers      // open operations that run point to point
	scratch   scratch        // for their sums
	signs     []atomic.Int64 // by rank: when data last came from it, by the node's clock

	// Of who runs the node.
	ops      map[fabric.OpKey]*operation
	calls    map[uint64]*call
	reqs     uint64
	readIDs  uint64
	names    map[uint32]string           // of communicators
	failing  map[fabric.OpKey]*operation // that are being made quiet
	joining  map[uint32]chan struct{}    // communicators whose multicast groups are being joined; closed when they are
	early    early
	agreeing agreements
	msg      []byte
	clock    *time.Timer
	clockAt  step.Time   // when it goes off
	queuedAt step.Time   // since when datagrams wait and none was placed; 0: it is not so
	heardAt  []step.Time // by rank: of signs, what the node knows
	stopped  bool
	whenIdle func()
	leaving  chan struct{} // nil: we stay
	left     bool          // it is closed
	watcher  watcher

	blocks blocks // of Alloc

	mu       sync.Mutex
	comms    map[uint32]*group
	closing  atomic.Bool
	due      atomic.Int64   // clockAt, for those who serve the network
	served   atomic.Bool    // who waits for a call serves the network
	bulk     atomic.Bool    // much is still to be placed by the Placer: nothing comes soon
	asleep   atomic.Bool    // and sleeps
	spin     time.Duration  // how long it looks before that; its own
	alone    bool           // Go runs one goroutine at a time
	wg       sync.WaitGroup // workers
	over     chan struct{}
	once     sync.Once
	pinned   atomic.Int32
	failed   atomic.Uint64 // sends that the network refused
	repaired atomic.Uint64 // bytes
}

// group is what the callers' side needs to know of a communicator.
type group struct {
	rank    int
	members []int
	ranks   map[int]int // by world rank; nil: they are the same
	plans   plans
}

func newGroup(self int, members []int) *group {
	g := &group{rank: slices.Index(members, self), members: members}
	for i, w := range members {
		if i != w {
			g.ranks = make(map[int]int, len(members))
			break
		}
	}
	if g.ranks != nil {
		for i, w := range members {
			g.ranks[w] = i
		}
	}
	return g
}

// rankOf is the rank of a process in the communicator.
func (g *group) rankOf(world int) (rank int, member bool) {
	if g.ranks == nil {
		return world, world >= 0 && world < len(g.members)
	}
	rank, member = g.ranks[world]
	return rank, member
}

// New starts an engine.
func New(cfg Config) (*Engine, error) {
	layout, err := wire.NewLayout(wire.DefaultPSNBits)
	if err != nil {
		return nil, err
	}
	e := &Engine{
		cfg: cfg, log: cfg.Logger, start: time.Now(), layout: layout, tokens: newTokens(cfg.Secret), tasks: newQueue(),
		ops: map[fabric.OpKey]*operation{}, calls: map[uint64]*call{}, failing: map[fabric.OpKey]*operation{},
		reads: reads{open: map[uint64]*read{}}, transfers: transfers{open: map[fabric.OpKey]*operation{}}, signs: make([]atomic.Int64, cfg.Size),
		heardAt: make([]step.Time, cfg.Size), joining: map[uint32]chan struct{}{}, probes: newProbes(),
		clockAt: step.Never, spin: spinMost, alone: runtime.GOMAXPROCS(0) == 1, early: newEarly(cfg.Size), comms: map[uint32]*group{}, names: map[uint32]string{}, over: make(chan struct{}),
	}
	if e.log == nil {
		e.log = slog.New(slog.DiscardHandler)
	}
	nc := node.Config{
		Rank: cfg.Rank, Size: cfg.Size, Timeout: step.Time(cfg.Timeout), Deadline: step.Time(cfg.Deadline),
		Layout: layout, Eager: node.EagerLimit, Digest: cfg.Integrity,
		Limits: mcast.Limits{LinkRate: cfg.Rate / 8e9, Alpha: firstAlpha, MinAlpha: minAlpha, MaxAlpha: step.Second},
	}
	e.scratch.alloc = e.allocPlain
	if cfg.Multicast != nil {
		e.caps = cfg.Multicast.Capabilities()
		e.poller = e.caps.Poller
		e.protect()
		nc.Flow, nc.Room, nc.Taken = mcast.FlowCredit, uint64(max(1, e.caps.Room)), &e.taken
		if e.caps.Placer != nil {
			nc.Offload, nc.ByKernel = uint64(e.caps.Placer.Room()), &e.byKernel
		}
		nc.Batch, nc.Overhead = uint32(2*max(1, e.caps.Batch)), e.caps.Overhead
		e.flushAfter = uint32(max(1, min(e.caps.Room/8, 4*e.caps.Batch)))
	}
	e.due.Store(int64(step.Never))
	e.clock = time.AfterFunc(time.Hour, func() { e.push(newTask(taskTick)) })
	e.watch(&nc)
	e.node = node.New(0, nc)
	// There before any peer can reach us: a message for a communicator that is not
	// known is lost.
	for id, name := range []string{World: "world", Exit: "exit"} {
		if err := e.addComm(uint32(id), name, e.everybody()); err != nil {
			return nil, err
		}
	}
	// Peers may reach us before we know how to answer.
	e.running.Store(true)
	if e.rel, err = cfg.Reliable((*handler)(e)); err != nil {
		e.clock.Stop()
		if e.poller != nil {
			_ = e.poller.Close()
		}
		return nil, err
	}
	if e.rel.Poller != nil {
		e.poller = e.rel.Poller
	}
	if mc := cfg.Multicast; mc != nil {
		e.send = newSender(e, mc)
		e.wg.Add(1 + mc.Subgroups())
		go e.send.run()
		for sub := range mc.Subgroups() {
			r := newReceiver(e, sub, mc.Receiver(sub))
			e.recvs = append(e.recvs, r)
		}
		for _, r := range e.recvs {
			r.start()
		}
	}
	e.running.Store(false)
	e.push(newTask(taskTick))
	if e.caps.Placer != nil {
		if err := e.caps.Placer.Watch(e.look); err != nil {
			_ = e.Close()
			return nil, err
		}
	}
	return e, nil
}

// Slack before silence means loss, until the job's own round trips are known, and at least. A worker
// that has not had its turn on a busy machine needs no slack: see timer.
const (
	firstAlpha = step.Millisecond
	minAlpha   = 50 * step.Microsecond
)

// now is the node's clock.
func (e *Engine) now() step.Time { return step.Time(time.Since(e.start)) }

// patience is how long datagrams may wait in the receive queues without one of them
// being placed before they count for nothing: they are strangers', or nobody takes
// them.
const patience = 2 * step.Second

// timer lets the node look at the clock. What waits in a receive queue because its
// worker has not had its turn on a busy machine is not lost.
func (e *Engine) timer(now step.Time) {
	e.hear()
	switch {
	case !e.unseen() && !slices.ContainsFunc(e.recvs, (*receiver).pending):
		e.queuedAt = 0
	case e.queuedAt == 0:
		e.queuedAt = now
		e.node.Queued(now)
	case now-e.queuedAt < patience:
		e.node.Queued(now)
	}
	e.watcher.now = now
	e.node.Timer(now)
	e.act()
}

// hear tells the node of ranks that data came from.
func (e *Engine) hear() {
	for rank := range e.signs {
		if at := step.Time(e.signs[rank].Load()); at > e.heardAt[rank] {
			e.heardAt[rank] = at
			e.node.Heard(at, rank)
			e.watcher.heard[rank] = max(e.watcher.heard[rank], at)
		}
	}
}

func (e *Engine) handle(t *task) {
	now := e.now()
	e.sees(now, t)
	switch t.kind {
	case taskCall:
		e.begin(now, t.call)
	case taskDo:
		t.do()
	case taskMessage:
		e.node.Message(now, t.peer, &t.msg)
	case taskData:
		e.data(now, t)
	case taskPieces:
		e.node.Pieces(now, t.peer, t.op.key.Comm, t.op.key.Seq, int(t.id), int(t.n))
	case taskPutDone:
		e.putDone(now, t.peer, t.piece)
	case taskReadDone:
		e.readDone(now, t.read)
	case taskReadPlaced:
		e.readPlaced(now, t)
	case taskRegistered:
		e.registered(t.piece.Op, t.err)
	case taskLost:
		e.lost(now, t.peer, t.err)
	case taskReport:
		if t.rep.Chunks > 0 {
			e.queuedAt = 0
		}
		e.node.Received(now, t.rep, t.n == 1)
		freeReport(t.rep)
	case taskSent:
		if !t.op.gone {
			e.node.Sent(now, t.op.key.Comm, t.op.key.Seq, t.n)
		}
	case taskClaimed:
		e.claimed(now, t.read)
	case taskQuiet:
		e.quiet(t.op)
	case taskTick:
		e.clockAt = step.Never
		e.due.Store(int64(step.Never))
	case taskDigest:
		e.digested(now, t.op, t.id)
	case taskFinished:
		e.end(t.id, t.err)
	default:
	}
	e.act()
}

// lost gives a peer up.
func (e *Engine) lost(now step.Time, peer int, err error) {
	goodbye := errors.Is(err, fabric.ErrGoodbye)
	if goodbye && e.leaving != nil {
		// It has heard from everybody that they leave, or waits no longer. Nor do we.
		if !e.left {
			e.left = true
			close(e.leaving)
		}
		return
	}
	e.lostPeer(peer, goodbye, err)
	switch {
	case e.closing.Load():
	case goodbye:
		e.log.Info("a rank has left", "peer", peer)
	default:
		e.log.Warn("lost a rank", "peer", peer, "err", err)
	}
	e.node.PeerLost(now, peer)
}

// do runs a function where the node is run and waits for it. It reports false if the
// engine has stopped.
func (e *Engine) do(f func()) bool {
	select {
	case <-e.over:
		return false // what is pushed now would stay
	default:
	}
	done := make(chan struct{})
	t := newTask(taskDo)
	t.do = func() { f(); close(done) }
	e.push(t)
	select {
	case <-done:
		return true
	case <-e.over:
		return false
	}
}

// Communicators of all ranks, which are always there. Exit is for joining and
// leaving: who leaves while others go on is not mistaken for one who made another
// call, and who has just joined cannot fail the joining of others.
const (
	World = iota
	Exit
	FirstComm // ids from here on are free
)

func (e *Engine) everybody() []int {
	all := make([]int, e.cfg.Size)
	for i := range all {
		all[i] = i
	}
	return all
}

// AddComm makes a communicator of world ranks, in the order of its ranks. No two
// communicators of a process have the same id, no two of a job the same name:
// those of processes that have nothing else in common still share the network.
// All members add it before one of them uses it.
func (e *Engine) AddComm(id uint32, name string, members []int) (err error) {
	e.join(id, name)
	if !e.do(func() { err = e.addComm(id, name, members); e.act() }) {
		return ErrClosed
	}
	return err
}

func (e *Engine) addComm(id uint32, name string, members []int) error {
	if err := e.node.AddComm(id, members); err != nil {
		return err
	}
	e.register(id, name, members)
	return nil
}

// Abort breaks a communicator on all ranks.
func (e *Engine) Abort(comm uint32) (err error) {
	if !e.do(func() { err = e.node.Abort(comm); e.act() }) {
		return ErrClosed
	}
	return err
}

// Disown ends the use of a communicator that could not be made everywhere, because its parent broke.
func (e *Engine) Disown(comm, parent uint32) (err error) {
	if !e.do(func() { err = e.node.Disown(comm, parent); e.act() }) {
		return ErrClosed
	}
	return err
}

// Inherit breaks a communicator with the verdict of another, if that one is broken.
func (e *Engine) Inherit(comm, from uint32) (err error) {
	if !e.do(func() { err = e.node.Inherit(comm, from); e.act() }) {
		return ErrClosed
	}
	return err
}

// Caps is what the multicast side can do; zero if there is none.
func (e *Engine) Caps() fabric.Capabilities { return e.caps }

// sendFailed counts a multicast that the network refused, and says so once.
func (e *Engine) sendFailed(err error) {
	if errors.Is(err, fabric.ErrClosed) {
		return
	}
	if e.failed.Add(1) == 1 {
		e.log.Error("multicast could not be sent; what is missing will be fetched", "err", err)
	}
}

// Leave waits until all ranks want to leave, with a barrier on Exit, or one has left,
// or for so long. Then it is time to Close.
func (e *Engine) Leave(most time.Duration, barrier string) {
	leaving := make(chan struct{})
	if !e.do(func() { e.leaving = leaving }) {
		return
	}
	r, err := e.Start(Exit, Call{Kind: wire.Barrier, Algo: barrier})
	if err != nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), most)
	defer cancel()
	select {
	case <-r.Done():
		if r.Err() != nil {
			e.depart(ctx, leaving) // without those who were lost
		}
	case <-leaving:
	case <-ctx.Done():
	}
}

// Close ends the engine. Calls that have not ended fail with ErrClosed, once
// nothing touches their buffers any more.
func (e *Engine) Close() error {
	e.once.Do(e.close)
	return nil
}

func (e *Engine) close() {
	e.mu.Lock()
	e.closing.Store(true)
	var comms []uint32
	for id := range e.comms {
		comms = append(comms, id)
	}
	e.mu.Unlock()
	// Let nothing begin any more; what runs is broken here and at the others.
	idle := make(chan struct{})
	e.do(func() {
		if len(e.calls) == 0 {
			close(idle)
			return
		}
		for _, id := range comms {
			_ = e.node.Abort(id) // it exists
		}
		e.act()
		e.whenIdle = func() { close(idle) }
		e.checkIdle()
	})
	// A worker that waits for the network must answer now.
	if mc := e.cfg.Multicast; mc != nil {
		_ = mc.Close()
	}
	<-idle
	e.scratch.close()
	_ = e.rel.Close()
	if e.send != nil {
		close(e.send.stop)
	}
	for _, r := range e.recvs {
		r.command(newTask(cmdStop), r.polled)
	}
	e.wg.Wait()
	if e.poller != nil {
		_ = e.poller.Close()
	}
	if e.caps.Placer != nil {
		_ = e.caps.Placer.Close()
	}
	e.do(e.stop)
}
