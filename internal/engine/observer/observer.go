// Package observer watches one engine: it keeps the flight recorder, tells people of failures, and
// answers questions about the state and the counters. It decides nothing.
//
// The goroutine that runs the node calls the trace methods. State, Metrics and Stats may be called by
// any goroutine; they run a function on that goroutine to find out what the node knows.
package observer

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"os"
	"slices"
	"sync/atomic"
	"time"

	"github.com/allcast/allcast/internal/engine/datapath"
	"github.com/allcast/allcast/internal/node"
	"github.com/allcast/allcast/internal/observe"
	"github.com/allcast/allcast/internal/settings"
	"github.com/allcast/allcast/internal/step"
	"github.com/allcast/allcast/internal/wire"
)

const (
	// askLimit is how long State and Metrics wait for the node, which is never that slow.
	askLimit = time.Second
	// dumpLimit is how long a failure is held back until it is written down: a disk may hang.
	dumpLimit = 2 * time.Second
	// maxFailures bounds the failures that are told apart.
	maxFailures = 64
)

// Config describes a process to its observer.
type Config struct {
	settings.Job
	Logger *slog.Logger  // nil: none
	Who    observe.State // identity of this process, for people who inspect it

	JoinSent, JoinReceived uint64 // bytes of meeting the other ranks

	Failed func(*observe.Dump) // called once per failure, may block; nil: nobody is told

	// Watch, for tests, is called for phases, activations and puts, while the node does nothing else;
	// nil: nobody is told.
	Watch func(comm uint32, seq uint64, what string)
}

// A View is the engine as the observer sees it.
type View interface {
	// Submit runs f later on the goroutine that runs the node, unless the engine has stopped. It does not block.
	Submit(f func())
	// Stopped is closed when the engine has stopped. Then nobody else uses the node.
	Stopped() <-chan struct{}
	Counters() datapath.Counters

	// Only the goroutine that runs the node calls these.
	CommName(id uint32) string
	Call(req uint64) *Call // nil: it has ended
	Calls() int
}

// A Call describes a call for people.
type Call struct {
	Comm      uint32
	Seq       uint64
	Kind      wire.CallKind
	Algo      string
	Bytes     int64 // over all ranks where they differ
	Begin     step.Time
	Lifecycle bool // joining or leaving, which nobody counts as an operation
}

func (k *Call) event(kind observe.Kind, n int64) observe.Event {
	return observe.Event{
		Kind: kind, Comm: k.Comm, Seq: k.Seq, What: uint8(k.Kind), N: n, Text: k.Algo, Peer: observe.NoPeer,
	}
}

// An Observer watches one engine.
type Observer struct {
	cfg    Config
	closed error            // error of calls that Close ended
	clock  func() step.Time // of the node
	view   View
	node   *node.Node

	// Owned by the goroutine that runs the node.
	recorder observe.Recorder
	now      step.Time   // of the task at hand
	heard    []step.Time // by rank: when something last came from it; 0: never
	gone     []bool      // by rank: its connection has ended
	tallies  observe.Tallies
	known    map[failure]func() // logged failures; the function waits until one is written down
	debug    bool
	trace    bool

	fallbacks atomic.Uint64 // reductions of which aggregators did not make all sums
}

// failure tells failures apart. All calls of a communicator fail for the same reason, and a lost rank
// breaks several communicators.
type failure struct {
	reason  node.Reason
	culprit int
	comm    uint32
}

// New returns an Observer. Attach completes it before anything runs.
func New(cfg Config, closed error, clock func() step.Time) *Observer {
	return &Observer{
		cfg: cfg, closed: closed, clock: clock, heard: make([]step.Time, cfg.Size),
		gone: make([]bool, cfg.Size), tallies: observe.Tallies{}, known: map[failure]func(){},
		debug: cfg.Logger.Enabled(context.Background(), slog.LevelDebug),
		trace: cfg.Logger.Enabled(context.Background(), settings.LevelTrace),
	}
}

// Attach tells the observer whom it watches.
func (o *Observer) Attach(n *node.Node, v View) { o.node, o.view = n, v }

func (o *Observer) note(ev observe.Event) {
	ev.At = int64(o.now)
	o.recorder.Add(&ev)
	if o.trace {
		o.cfg.Logger.Log(context.Background(), settings.LevelTrace, ev.Kind.String(),
			"detail", ev.Detail(), "comm", ev.Comm, "seq", ev.Seq, "peer", ev.Peer, "n", ev.N, "text", ev.Text)
	}
}

// TraceTime sets the time of what follows.
func (o *Observer) TraceTime(now step.Time) { o.now = now }

// TraceHeard notes that something came from a rank.
func (o *Observer) TraceHeard(rank int, at step.Time) {
	if rank >= 0 && rank < len(o.heard) {
		o.heard[rank] = max(o.heard[rank], at)
	}
}

// TraceMessage records a message before it is handled.
func (o *Observer) TraceMessage(peer int, m *wire.Msg) {
	o.TraceHeard(peer, max(1, o.now))
	o.noteMessage(observe.Received, peer, m)
}

// noteMessage records a message. Heartbeats would push out the events that matter.
func (o *Observer) noteMessage(kind observe.Kind, peer int, m *wire.Msg) {
	if m.Kind != wire.MsgHeartbeat {
		o.note(observe.Event{Kind: kind, Comm: m.Comm, Seq: m.Seq, What: uint8(m.Kind), Peer: int32(peer)})
	}
}

// TracePhase records a change of phase.
func (o *Observer) TracePhase(comm uint32, seq uint64, _, to step.Phase) {
	o.note(observe.Event{Kind: observe.Phase, Comm: comm, Seq: seq, What: uint8(to), Peer: observe.NoPeer})
	if o.cfg.Watch != nil {
		o.cfg.Watch(comm, seq, to.String())
	}
}

// TraceAction records an action before it is carried out.
func (o *Observer) TraceAction(a *node.Action) {
	switch a.Kind {
	case node.Send:
		m := &a.Msg
		if o.cfg.Watch != nil && (m.Kind == wire.MsgActivate || m.Kind == wire.MsgChainSent) {
			o.cfg.Watch(m.Comm, m.Seq, "activation")
		}
		o.noteMessage(observe.Sent, a.To, m)
	case node.Put:
		if o.cfg.Watch != nil {
			o.cfg.Watch(a.Comm, a.Seq, "put")
		}
	case node.Fetch:
		o.note(observe.Event{Kind: observe.Repair, Comm: a.Comm, Seq: a.Seq, Peer: observe.NoPeer, N: int64(a.N)})
	case node.Read:
		chunks := int64(wire.Chunks(a.Ranges))
		o.note(observe.Event{Kind: observe.Repair, Comm: a.Comm, Seq: a.Seq, Peer: int32(a.To), N: chunks})
	}
}

// TraceRepair records chunks that were fetched.
func (o *Observer) TraceRepair(comm uint32, seq uint64, peer int, bytes int64) {
	o.note(observe.Event{Kind: observe.Repaired, Comm: comm, Seq: seq, Peer: int32(peer), N: bytes})
}

// TraceFallback counts a reduction that did not rely on aggregators.
func (o *Observer) TraceFallback() { o.fallbacks.Add(1) }

// TraceDrop records that the node gives a rank up. With departing set, that is no news for people.
func (o *Observer) TraceDrop(peer int, departing bool) {
	o.note(observe.Event{Kind: observe.Dropped, Peer: int32(peer)})
	if !o.gone[peer] && !departing {
		o.cfg.Logger.Info("lost a rank", "peer", peer, "err", "it was silent for too long, or others lost it")
	}
}

// TraceLost records that a connection has ended, with the peer's goodbye or by an error.
func (o *Observer) TraceLost(peer int, goodbye bool, err error, closing bool) {
	o.gone[peer] = true
	ev := observe.Event{Kind: observe.PeerLeft, Peer: int32(peer)}
	if !goodbye {
		ev.Kind, ev.Text = observe.PeerLost, err.Error()
	}
	o.note(ev)
	switch {
	case closing:
	case peer == o.cfg.Rank:
		o.cfg.Logger.Error("this rank cannot go on", "err", err)
	case goodbye:
		o.cfg.Logger.Info("a rank has left", "peer", peer)
	default:
		o.cfg.Logger.Warn("lost a rank", "peer", peer, "err", err)
	}
}

// TraceStart records a call before the node gets it.
func (o *Observer) TraceStart(k *Call) {
	o.note(k.event(observe.CallBegun, k.Bytes))
	if o.debug {
		o.cfg.Logger.Debug("operation started", "op", k.Kind, "algo", k.Algo, "bytes", k.Bytes,
			"comm", o.view.CommName(k.Comm), "seq", k.Seq)
	}
}

// TraceEnd records how a call ended. It returns a function that waits until the failure is written
// down, which has to happen before the caller may know; nil: nothing is. With departing set, this
// process leaves or closes, and its failures are no news for people.
func (o *Observer) TraceEnd(k *Call, err error, departing bool) (wait func()) {
	took := time.Duration(o.clock() - k.Begin)
	if !k.Lifecycle {
		o.tallies.Add(observe.Series{Op: k.Kind.String(), Algo: k.Algo}, o.outcome(err), took)
	}
	ev := k.event(observe.CallEnded, int64(took))
	if err == nil {
		o.note(ev)
		if o.debug {
			o.cfg.Logger.Debug("operation ended", "op", k.Kind, "algo", k.Algo,
				"comm", o.view.CommName(k.Comm), "seq", k.Seq, "took", took)
		}
		return nil
	}
	ev.Kind, ev.What = observe.CallFailed, 0
	var ne *node.Error
	if errors.As(err, &ne) {
		ev.What, ev.Peer = uint8(ne.Reason), int32(ne.Culprit)
	}
	o.note(ev)
	return o.traceFailure(k, ne, err, departing)
}

// traceFailure logs a failed call, once for all calls that failed for the same reason.
func (o *Observer) traceFailure(k *Call, ne *node.Error, err error, departing bool) (wait func()) {
	level := slog.LevelWarn
	switch {
	case departing:
		level = slog.LevelDebug
	case ne == nil:
	case ne.Reason.OneCall():
		level = slog.LevelDebug // it concerns this call only
	default:
		key := failure{ne.Reason, ne.Culprit, ne.Comm}
		if ne.Reason == node.Lost {
			key.comm = 0
		}
		known, again := o.known[key]
		switch {
		case again:
			level, wait = slog.LevelDebug, known
		case len(o.known) < maxFailures:
			wait = o.dump(k, ne)
			o.known[key] = wait
		}
		if (ne.Reason == node.Aborted || ne.Reason == node.Cancelled) && ne.Culprit == o.cfg.Rank {
			level = slog.LevelDebug // the caller asked for it
		}
	}
	attrs := []any{"op", k.Kind, "algo", k.Algo, "comm", o.view.CommName(k.Comm), "seq", k.Seq}
	if ne != nil {
		attrs = append(attrs, "culprit", ne.Culprit, "reason", ne.Reason, "phase", ne.Phase, "missing", ne.Missing)
	} else {
		attrs = append(attrs, "err", err)
	}
	o.cfg.Logger.Log(context.Background(), level, "operation failed", attrs...)
	return wait
}

// dump hands the content of the recorder to Config.Failed, and returns a function that waits for it.
func (o *Observer) dump(k *Call, ne *node.Error) (wait func()) {
	if o.cfg.Failed == nil {
		return nil
	}
	d := &observe.Dump{State: o.state(observe.Size), Failure: observe.Failure{
		Op: k.Kind.String(), Algo: k.Algo, Comm: k.Comm, Seq: k.Seq, Phase: ne.Phase.String(),
		Culprit: ne.Culprit, Reason: ne.Reason.String(), Missing: ne.Missing,
	}}
	done := make(chan struct{})
	go func() {
		defer close(done)
		o.cfg.Failed(d)
	}()
	return func() {
		select {
		case <-done:
		case <-time.After(dumpLimit):
		}
	}
}

// outcome is how a call ended, as a label.
func (o *Observer) outcome(err error) string {
	var ne *node.Error
	switch {
	case err == nil:
		return "ok"
	case errors.As(err, &ne):
		return cmp.Or(outcomes[ne.Reason], "error")
	case errors.Is(err, o.closed):
		return "closed"
	}
	return "error"
}

var outcomes = map[node.Reason]string{
	node.Lost: "lost", node.Aborted: "aborted", node.Deadline: "deadline", node.Mismatch: "mismatch",
	node.Protocol: "protocol", node.Corrupt: "corrupt", node.Cancelled: "cancelled", node.Left: "closed",
	node.Withdrawn: "cancelled", // its context has ended, too
	node.Unmatched: "deadline",
}

// ask computes something on the goroutine that runs the node. It reports false if the engine has stopped or
// the limit has passed; a nil limit never does.
func ask[T any](o *Observer, limit <-chan time.Time, f func() T) (v T, ok bool) {
	answer := make(chan T, 1) // nobody takes a late answer
	o.view.Submit(func() { answer <- f() })
	select {
	case v = <-answer:
		return v, true
	case <-o.view.Stopped():
	case <-limit:
	}
	return v, false
}

// State implements observe.Source: the state of the process, with its last events.
func (o *Observer) State(events int) observe.State {
	s, ok := ask(o, time.After(askLimit), func() observe.State { return o.state(events) })
	if !ok {
		s = o.identity()
	}
	return s
}

// identity is the part of the state that does not need the node.
func (o *Observer) identity() observe.State {
	s := o.cfg.Who
	s.Rank, s.Size, s.Pid, s.Time = o.cfg.Rank, o.cfg.Size, os.Getpid(), time.Now()
	s.Joined = time.Duration(o.clock()).Seconds()
	return s
}

// state runs on the goroutine that runs the node.
func (o *Observer) state(events int) observe.State {
	s, now := o.identity(), o.clock()
	s.Answers = true
	for _, v := range o.node.Inspect() {
		s.Comms = append(s.Comms, o.commState(now, &v))
	}
	dead := o.node.Deaths()
	for r, at := range o.heard {
		p := observe.Peer{Rank: r, Heard: at > 0, Lost: slices.Contains(dead, r)}
		if p.Heard {
			p.Silent = observe.Seconds(int64(now - at))
		}
		if p.Heard || p.Lost {
			s.Peers = append(s.Peers, p)
		}
	}
	if events > 0 {
		s.Events = observe.Records(o.recorder.Events(events), int64(now))
	}
	s.Recorded = o.recorder.Total()
	return s
}

func (o *Observer) commState(now step.Time, v *node.CommView) observe.Comm {
	c := observe.Comm{ID: v.ID, Name: o.view.CommName(v.ID), Rank: v.Rank, Size: v.Size, Calls: v.Calls, Linger: v.Linger}
	if v.Broken {
		c.Broken, c.Culprit = v.Reason.String(), &v.Culprit
	}
	for _, x := range v.Open {
		op := observe.Op{
			Op: x.Kind.String(), Phase: x.Phase.String(), Seq: x.Seq, For: observe.Seconds(int64(now - x.Start)),
			WaitsOn: x.WaitingOn, Missing: x.Missing,
		}
		if x.Rounds > 1 {
			op.Round, op.Rounds = x.Round, x.Rounds
		}
		if k := o.view.Call(x.Req); k != nil {
			op.Algo, op.Bytes = k.Algo, k.Bytes
		}
		c.Ops = append(c.Ops, op)
	}
	return c
}
