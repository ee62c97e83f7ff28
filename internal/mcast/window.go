package mcast

import (
	"slices"

	"github.com/allcast/allcast/internal/step"
	"github.com/allcast/allcast/internal/wire"
)

const (
	// WindowCalls is the number of eager calls that a rank may be ahead of the slowest rank.
	WindowCalls = 16
	// windowQuantum is the number of eager calls after which ranks report their progress. It is half of the
	// window: reports travel while the other half is in use.
	windowQuantum = WindowCalls / 2
)

// A Window limits the eager calls of a communicator in flight (see Eager). The eager calls are numbered
// from 0 in call order, on all ranks alike. The control tree computes how many of them all ranks have
// finished, once per windowQuantum calls, at the cost of two messages per rank. A rank that waits for more
// than that asks all ranks to report: because its window is closed, or because it leaves the communicator.
//
// A report carries a digest of all eager calls up to its number. Ranks that made different eager calls
// therefore find out, also if none of them waits for another.
type Window struct {
	comm     uint32
	parent   int
	children []int
	heard    []report    // by child: its last report
	calls    []eagerCall // calls that some rank may not have finished, and the last ones before them
	first    uint64      // number of calls[0]
	made     uint64      // eager calls that this rank has made
	finished uint64      // eager calls that this rank has finished, without a gap
	reported uint64      // last report to the parent
	all      uint64      // eager calls that all ranks have finished
	wanted   uint64      // number of eager calls at which any rank waits for a report
	ask      *wire.Msg
	askFrom  int // neighbour that ask came from
}

// report is the progress of a child's subtree.
type report struct {
	n, sum  uint64
	checked bool // whether sum was compared
}

// eagerCall is what a rank remembers of an eager call.
type eagerCall struct {
	seq, digest uint64
	sum         uint64 // digest of all eager calls up to this one
	call        wire.Call
	finished    bool
}

// NewWindow returns the window of a communicator.
func NewWindow(comm uint32, rank, size int) *Window {
	w := &Window{comm: comm, parent: TreeParent(rank, size), children: AppendTreeChildren(nil, rank, size)}
	w.heard = make([]report, len(w.children))
	return w
}

// Begin numbers the next eager call.
func (w *Window) Begin(g *Geometry, seq uint64) (number uint64) {
	number = w.made
	sum := mix(w.sum(number), seq, g.digest)
	// A peer may still ask for chunks of the calls that all ranks have finished recently.
	if old := w.all - min(w.all, w.first+WindowCalls); old >= WindowCalls && old >= uint64(len(w.calls)/2) {
		w.calls = slices.Delete(w.calls, 0, int(old))
		w.first += old
	}
	w.calls = append(w.calls, eagerCall{seq: seq, digest: g.digest, sum: sum, call: g.call})
	w.made++
	return number
}

// call returns what this rank remembers of an eager call.
func (w *Window) call(number uint64) *eagerCall { return &w.calls[number-w.first] }

// mix adds a call to the digest of the calls before it.
func mix(sum, seq, digest uint64) uint64 {
	const prime = 0x100000001b3
	return ((sum^seq)*prime ^ digest) * prime
}

// sum returns the digest of the first n eager calls.
func (w *Window) sum(n uint64) uint64 {
	if n == 0 {
		return 0xcbf29ce484222325
	}
	return w.call(n - 1).sum
}

// MaySend reports whether the receive queues have room for an eager call.
func (w *Window) MaySend(number uint64) bool { return number < w.all+WindowCalls }

// Passed reports whether all ranks have finished an eager call.
func (w *Window) Passed(number uint64) bool { return number < w.all }

// Idle reports whether all ranks have finished all eager calls that this rank has made.
func (w *Window) Idle() bool { return w == nil || w.made == w.all }

// All returns the number of eager calls that all ranks have finished.
func (w *Window) All() uint64 { return w.all }

// Finish records that this rank has finished an eager call.
func (w *Window) Finish(number uint64, out []step.Action) []step.Action {
	w.call(number).finished = true
	for w.finished < w.made && w.call(w.finished).finished {
		w.finished++
	}
	return w.reduce(out)
}

// Await makes all ranks report when they have finished n eager calls, which this rank has made.
func (w *Window) Await(n uint64, out []step.Action) []step.Action {
	if n <= max(w.wanted, w.all) {
		return out
	}
	w.wanted = n
	c := w.call(n - 1)
	out = w.forward(&wire.Msg{
		Kind: wire.MsgFinishedAsk, Seq: c.seq, Grant: n, Digest: c.digest, Call: c.call,
	}, -1, out)
	return w.reduce(out)
}

// AwaitAll is Await for all eager calls that this rank has made.
func (w *Window) AwaitAll(out []step.Action) []step.Action { return w.Await(w.made, out) }

// Oldest returns the sequence number of the first eager call that some rank may not have finished.
func (w *Window) Oldest() (seq uint64, ok bool) {
	if w.Idle() {
		return 0, false
	}
	return w.call(w.all).seq, true
}

// WaitingOn returns the neighbour in the control tree whose report is missing for n finished calls, or -1.
func (w *Window) WaitingOn(n uint64) int {
	for i, h := range w.heard {
		if h.n < n {
			return w.children[i]
		}
	}
	return w.parent
}

// Recall compares a call that a peer made with number seq with this rank's eager call of that number.
// It returns ok if they are the same, or if it is too long ago to tell.
func (w *Window) Recall(seq, digest uint64) (ours wire.Call, ok bool) {
	if w == nil {
		return wire.Call{}, false
	}
	for i := range slices.Backward(w.calls) {
		if c := &w.calls[i]; c.seq == seq {
			return c.call, c.digest == digest
		}
	}
	tooOld := w.first > 0 && seq < w.calls[0].seq
	return wire.Call{}, tooOld
}

// Handle handles a message of a neighbour in the control tree.
func (w *Window) Handle(from int, m *wire.Msg, out []step.Action) []step.Action {
	switch m.Kind {
	case wire.MsgFinishedUp:
		if i := slices.Index(w.children, from); i >= 0 && m.Grant > w.heard[i].n {
			w.heard[i] = report{n: m.Grant, sum: m.Digest}
			out = w.reduce(out)
		}
	case wire.MsgFinished:
		if from == w.parent {
			out = w.pass(m.Grant, out)
		}
	case wire.MsgFinishedAsk:
		if m.Grant > w.wanted && m.Grant > w.all && (from == w.parent || slices.Contains(w.children, from)) {
			ask := *m
			w.wanted, w.ask, w.askFrom = m.Grant, &ask, from
			out = w.reduce(w.forward(m, from, out))
		}
	}
	return out
}

// Asked compares the call that a peer waits for with this rank's call of the same number. It returns the
// peer and its message if they differ. next is the number of this rank's next call.
func (w *Window) Asked(next uint64) (from int, ask *wire.Msg, ours wire.Call) {
	a := w.ask
	if a == nil || a.Seq >= next {
		return -1, nil, wire.Call{}
	}
	w.ask = nil
	if call, ok := w.Recall(a.Seq, a.Digest); !ok {
		return w.askFrom, a, call
	}
	return -1, nil, wire.Call{}
}

// Unmade returns the neighbour that waits for a call from next on, or -1.
func (w *Window) Unmade(next uint64) int {
	if w == nil || w.ask == nil || w.ask.Seq < next {
		return -1
	}
	return w.askFrom
}

// Awaits reports whether a rank waits for a report of a neighbour that has reported fewer calls.
func (w *Window) Awaits(rank int) bool {
	switch {
	case w == nil:
		return false
	case rank == w.parent:
		return w.all < w.wanted
	}
	i := slices.Index(w.children, rank)
	return i >= 0 && w.heard[i].n < w.wanted
}

// reduce reports the progress of this rank's subtree when it is due.
func (w *Window) reduce(out []step.Action) []step.Action {
	n := w.finished
	for i := range w.heard {
		h := &w.heard[i]
		if !h.checked && h.n <= w.made && h.n > 0 {
			h.checked = true
			if h.n > w.first && w.sum(h.n) != h.sum {
				last := w.call(h.n - 1)
				return append(out, step.Action{
					Kind: step.ActMismatch, To: w.children[i], Msg: wire.Msg{Seq: last.seq},
				})
			}
		}
		n = min(n, h.n)
	}
	due := n/windowQuantum > w.reported/windowQuantum || w.wanted > w.reported && n > w.reported
	if !due {
		return out
	}
	w.reported = n
	if w.parent >= 0 {
		return w.send(out, w.parent, &wire.Msg{Kind: wire.MsgFinishedUp, Grant: n, Digest: w.sum(n)})
	}
	return w.pass(n, out)
}

// pass records how many eager calls all ranks have finished, and tells the ranks below.
func (w *Window) pass(n uint64, out []step.Action) []step.Action {
	if n <= w.all || n > w.reported {
		return out // a correct rank never passes on more than this rank has reported
	}
	w.all = n
	for _, c := range w.children {
		out = w.send(out, c, &wire.Msg{Kind: wire.MsgFinished, Grant: n})
	}
	return out
}

// forward sends a message along the control tree, except to the neighbour that it came from.
func (w *Window) forward(m *wire.Msg, from int, out []step.Action) []step.Action {
	if w.parent >= 0 && w.parent != from {
		out = w.send(out, w.parent, m)
	}
	for _, c := range w.children {
		if c != from {
			out = w.send(out, c, m)
		}
	}
	return out
}

func (w *Window) send(out []step.Action, to int, m *wire.Msg) []step.Action {
	m.Comm = w.comm
	return append(out, step.Action{Kind: step.ActSend, To: to, Msg: *m})
}
