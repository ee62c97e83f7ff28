package engine

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"slices"
	"time"

	"github.com/allcast/allcast/internal/node"
	"github.com/allcast/allcast/internal/observe"
	"github.com/allcast/allcast/internal/settings"
	"github.com/allcast/allcast/internal/step"
	"github.com/allcast/allcast/internal/wire"
)

// askMost is how long who inspects us waits for the node: it is never that slow.
const askMost = time.Second

// dumpMost is how long a failure is kept back so that it can be written down.
const dumpMost = 2 * time.Second

// maxFailures bounds the failures that are told apart.
const maxFailures = 64

// watcher sees what the node does. All of it belongs to who runs the node.
type watcher struct {
	rec     observe.Recorder
	now     step.Time   // of the task at hand
	heard   []step.Time // by rank: when something came from it; 0: never
	gone    []bool      // by rank: we saw its connection end
	tallies observe.Tallies
	known   map[failure]func() // that were logged; and what waits until one is written down
	debug   bool
	trace   bool
}

// failure tells failures apart: all calls of a communicator end by the same, and a
// rank that is lost breaks several.
type failure struct {
	reason  node.Reason
	culprit int
	comm    uint32
}

// watch prepares the watcher, before the node is made.
func (e *Engine) watch(nc *node.Config) {
	w := &e.watcher
	w.heard, w.gone = make([]step.Time, e.cfg.Size), make([]bool, e.cfg.Size)
	w.tallies, w.known = observe.Tallies{}, map[failure]func(){}
	w.debug = e.log.Enabled(context.Background(), slog.LevelDebug)
	w.trace = e.log.Enabled(context.Background(), settings.LevelTrace)
	nc.Turned = func(comm uint32, seq uint64, _, to step.Phase) {
		e.note(observe.Event{Kind: observe.Phase, Comm: comm, Seq: seq, What: uint8(to), Peer: observe.NoPeer})
		if e.cfg.Watch != nil {
			e.cfg.Watch(comm, seq, to.String())
		}
	}
}

// note records an event.
func (e *Engine) note(ev observe.Event) {
	ev.At = int64(e.watcher.now)
	e.watcher.rec.Add(&ev)
	if e.watcher.trace {
		e.log.Log(context.Background(), settings.LevelTrace, ev.Kind.String(),
			"detail", ev.Detail(), "comm", ev.Comm, "seq", ev.Seq, "peer", ev.Peer, "n", ev.N, "text", ev.Text)
	}
}

// sees looks at a task before it is done.
func (e *Engine) sees(now step.Time, t *task) {
	w := &e.watcher
	w.now = now
	switch t.kind {
	case taskMessage, taskData:
		if t.peer >= 0 && t.peer < len(w.heard) {
			w.heard[t.peer] = max(1, now)
		}
	default:
		return
	}
	// Heartbeats would push out what matters; when the last one came is kept anyway.
	if t.kind == taskMessage && t.msg.Kind != wire.MsgHeartbeat {
		e.note(observe.Event{Kind: observe.Received, Comm: t.msg.Comm, Seq: t.msg.Seq, What: uint8(t.msg.Kind), Peer: int32(t.peer)})
	}
}

// acts looks at an action before it is carried out.
func (e *Engine) acts(a *node.Action) {
	if e.cfg.Watch != nil {
		e.watched(a)
	}
	switch a.Kind {
	case node.Send:
		if a.Msg.Kind != wire.MsgHeartbeat {
			e.note(observe.Event{Kind: observe.Sent, Comm: a.Msg.Comm, Seq: a.Msg.Seq, What: uint8(a.Msg.Kind), Peer: int32(a.To)})
		}
	case node.Read:
		e.note(observe.Event{Kind: observe.Repair, Comm: a.Comm, Seq: a.Seq, Peer: int32(a.To), N: int64(wire.Chunks(a.Ranges))})
	case node.Drop:
		e.note(observe.Event{Kind: observe.Dropped, Peer: int32(a.To)})
		if !e.watcher.gone[a.To] && e.leaving == nil && !e.closing.Load() {
			e.log.Info("lost a rank", "peer", a.To, "err", "it was silent for too long, or others lost it")
		}
	}
}

// lostPeer records that a connection has ended.
func (e *Engine) lostPeer(peer int, goodbye bool, err error) {
	e.watcher.gone[peer] = true
	if goodbye {
		e.note(observe.Event{Kind: observe.PeerLeft, Peer: int32(peer)})
		return
	}
	e.note(observe.Event{Kind: observe.PeerLost, Peer: int32(peer), Text: err.Error()})
}

// begun records a call that is about to be handed to the node.
func (e *Engine) begun(now step.Time, k *call) {
	k.at, k.seq = now, e.node.NextSeq(k.comm)
	e.note(observe.Event{Kind: observe.CallBegun, Comm: k.comm, Seq: k.seq, What: uint8(k.Kind), N: k.bytes(), Text: k.Algo, Peer: observe.NoPeer})
	if e.watcher.debug {
		e.log.Debug("operation begun", "op", k.Kind, "algo", k.Algo, "bytes", k.bytes(), "comm", e.names[k.comm], "seq", k.seq)
	}
}

// ended records how a call ended, and returns what to wait for before its caller may
// know.
func (e *Engine) ended(k *call, err error) (wait func()) {
	took := time.Duration(e.now() - k.at)
	if k.comm != Exit { // joining and leaving are nobody's operations
		e.watcher.tallies.Add(observe.Series{Op: k.Kind.String(), Algo: k.Algo}, outcome(err), took)
	}
	ev := observe.Event{Kind: observe.CallEnded, Comm: k.comm, Seq: k.seq, What: uint8(k.Kind), N: int64(took), Text: k.Algo, Peer: observe.NoPeer}
	if err == nil {
		e.note(ev)
		if e.watcher.debug {
			e.log.Debug("operation ended", "op", k.Kind, "algo", k.Algo, "comm", e.names[k.comm], "seq", k.seq, "took", took)
		}
		return func() {}
	}
	ev.Kind, ev.What = observe.CallFailed, 0
	var ne *node.Error
	if errors.As(err, &ne) {
		ev.What, ev.Peer = uint8(ne.Reason), int32(ne.Culprit)
	}
	e.note(ev)
	return e.failure(k, ne, err)
}

// failure tells people of a call that failed, once for all calls that failed by the
// same.
func (e *Engine) failure(k *call, ne *node.Error, err error) (wait func()) {
	wait = func() {}
	level := slog.LevelWarn
	switch {
	case e.closing.Load() || (k.comm == Exit && e.leaving != nil):
		level = slog.LevelDebug // we are leaving, and so are the others
	case ne == nil:
	default:
		key := failure{ne.Reason, ne.Culprit, ne.Comm}
		if ne.Reason == node.Lost {
			key.comm = 0
		}
		known, again := e.watcher.known[key]
		switch {
		case again:
			level, wait = slog.LevelDebug, known
		case len(e.watcher.known) < maxFailures:
			wait = e.dump(k, ne)
			e.watcher.known[key] = wait
		}
		if (ne.Reason == node.Aborted || ne.Reason == node.Cancelled) && ne.Culprit == e.cfg.Rank {
			level = slog.LevelDebug // the caller asked for it
		}
	}
	attrs := []any{"op", k.Kind, "algo", k.Algo, "comm", e.names[k.comm], "seq", k.seq}
	if ne != nil {
		attrs = append(attrs, "culprit", ne.Culprit, "reason", ne.Reason, "phase", ne.Phase, "missing", ne.Missing)
	} else {
		attrs = append(attrs, "err", err)
	}
	e.log.Log(context.Background(), level, "operation failed", attrs...)
	return wait
}

// dump hands what the recorder holds to whoever writes it down, and returns what waits
// for it, for a bounded time: a disk may hang.
func (e *Engine) dump(k *call, ne *node.Error) (wait func()) {
	if e.cfg.Failed == nil {
		return func() {}
	}
	d := &observe.Dump{State: e.state(observe.Size), Failure: observe.Failure{
		Op: k.Kind.String(), Algo: k.Algo, Comm: k.comm, Seq: k.seq, Phase: ne.Phase.String(), Culprit: ne.Culprit, Reason: ne.Reason.String(), Missing: ne.Missing,
	}}
	done := make(chan struct{})
	go func() {
		defer close(done)
		e.cfg.Failed(d)
	}()
	return func() {
		select {
		case <-done:
		case <-time.After(dumpMost):
		}
	}
}

// outcome is how a call ended, as a label.
func outcome(err error) string {
	if err == nil {
		return "ok"
	}
	var ne *node.Error
	switch {
	case errors.As(err, &ne):
		if s := outcomes[ne.Reason]; s != "" {
			return s
		}
	case errors.Is(err, ErrClosed):
		return "closed"
	}
	return "error"
}

var outcomes = map[node.Reason]string{
	node.Lost: "lost", node.Aborted: "aborted", node.Deadline: "deadline", node.Mismatch: "mismatch", node.Protocol: "protocol", node.Corrupt: "corrupt", node.Cancelled: "cancelled",
	node.Left: "closed",
}

// askFor has something found out where the node is run. It reports false if that does
// not happen in time.
func askFor[T any](e *Engine, f func() T) (v T, ok bool) {
	answer := make(chan T, 1) // a late answer has nobody to take it
	t := newTask(taskDo)
	t.do = func() { answer <- f() }
	timer := time.NewTimer(askMost)
	defer timer.Stop()
	go e.push(t) // who pushes may have to work, which could be where it is stuck
	select {
	case v = <-answer:
		return v, true
	case <-e.over:
	case <-timer.C:
	}
	return v, false
}

// State implements observe.Source: what the process is at, with its last events.
func (e *Engine) State(events int) observe.State {
	s, ok := askFor(e, func() observe.State { return e.state(events) })
	if !ok {
		s = e.who()
	}
	return s
}

// who is what is known without asking the node.
func (e *Engine) who() observe.State {
	s := e.cfg.Who
	s.Rank, s.Size, s.Pid, s.Time, s.Joined = e.cfg.Rank, e.cfg.Size, os.Getpid(), time.Now(), time.Since(e.start).Seconds()
	return s
}

// state is for who runs the node.
func (e *Engine) state(events int) observe.State {
	s, now := e.who(), e.now()
	s.Answers = true
	for _, v := range e.node.Inspect() {
		s.Comms = append(s.Comms, e.commState(now, &v))
	}
	dead := e.node.Deaths()
	for r, at := range e.watcher.heard {
		p := observe.Peer{Rank: r, Heard: at > 0, Lost: slices.Contains(dead, r)}
		if p.Heard {
			p.Silent = observe.Seconds(int64(now - at))
		}
		if p.Heard || p.Lost {
			s.Peers = append(s.Peers, p)
		}
	}
	if events > 0 {
		s.Events = observe.Records(e.watcher.rec.Events(events), int64(now))
	}
	s.Recorded = e.watcher.rec.Total()
	return s
}

func (e *Engine) commState(now step.Time, v *node.CommView) observe.Comm {
	c := observe.Comm{ID: v.ID, Name: e.names[v.ID], Rank: v.Rank, Size: v.Size, Calls: v.Calls, Linger: v.Linger}
	if v.Broken {
		c.Broken, c.Culprit = v.Reason.String(), &v.Culprit
	}
	for _, o := range v.Open {
		op := observe.Op{
			Op: o.Kind.String(), Phase: o.Phase.String(), Seq: o.Seq, For: observe.Seconds(int64(now - o.Start)), WaitsOn: o.WaitingOn, Missing: o.Missing,
		}
		if o.Rounds > 1 {
			op.Round, op.Rounds = o.Round, o.Rounds
		}
		if k := e.calls[o.Req]; k != nil {
			op.Algo, op.Bytes = k.Algo, k.bytes()
		}
		c.Ops = append(c.Ops, op)
	}
	return c
}

// bytes is the size of the call, over all ranks where they differ.
func (k *call) bytes() int64 {
	if len(k.Counts) > 0 {
		return sum(k.Counts)
	}
	return int64(len(k.Recv))
}

// Metrics implements observe.Source.
func (e *Engine) Metrics() observe.Metrics {
	type known struct {
		stats   node.Stats
		tallies observe.Tallies
		calls   int
		lost    int
	}
	k, ok := askFor(e, func() known {
		return known{e.node.Stats(), e.watcher.tallies.Clone(), len(e.calls), len(e.node.Deaths())}
	})
	m := observe.Metrics{Job: e.cfg.Who.Job, Version: e.cfg.Who.Version, Rank: e.cfg.Rank, Size: e.cfg.Size, Answers: ok, Peers: map[int]observe.PeerBytes{}, Tallies: k.tallies}
	s := Stats{Stats: k.stats}
	e.count(&s)
	for r, p := range s.Peers {
		m.Peers[r] = observe.PeerBytes{Sent: p.Sent, Received: p.Received}
	}
	add := func(name string, v uint64, help string) {
		m.Numbers = append(m.Numbers, observe.Metric{Name: name, Help: help, Value: float64(v)})
	}
	add("sent_bytes_total", s.SentBytes(), "Bytes handed to the network, our headers included.")
	add("multicast_sent_bytes_total", s.McastBytes, "Bytes sent by multicast.")
	add("multicast_sent_chunks_total", s.McastChunks, "Chunks sent by multicast.")
	add("multicast_refused_total", s.Refused, "Multicasts that the network refused to send.")
	add("received_chunks_total", s.Placed, "Chunks received by multicast.")
	add("copied_chunks_total", s.Copied, "Chunks that were not received where they belong.")
	add("dropped_chunks_total", s.Dropped, "Datagrams dropped by our full receive queue, or by an injected fault.")
	add("repaired_bytes_total", s.RepairedBytes, "Bytes fetched because multicast did not deliver them.")
	add("rejected_connections_total", s.RejectedConns, "Connections that did not prove to be of a rank.")
	if !ok {
		return m // the rest is the node's
	}
	add("repaired_chunks_total", s.Repaired, "Chunks fetched because multicast did not deliver them.")
	add("late_chunks_total", s.Late, "Chunks that came by multicast after they had been asked for.")
	add("duplicate_chunks_total", s.Duplicates, "Chunks that came twice.")
	add("corrupt_chunks_total", s.Corrupt, "Datagrams changed on the way or forged, found by checksums or seals: ignored.")
	add("foreign_chunks_total", s.Foreign+s.Stale,
		"Strangers' and old datagrams, and pieces that no operation expected: ignored.")
	add("operations_running", uint64(k.calls), "Operations under way.")
	add("lost_ranks", uint64(k.lost), "Ranks that were lost.")
	return m
}
