package engine

import (
	"sync"

	"github.com/allcast/allcast/internal/fabric"
	"github.com/allcast/allcast/internal/node"
	"github.com/allcast/allcast/internal/protocol"
)

type taskKind uint8

const (
	taskCall         taskKind = iota // call: the application made it
	taskDo                           // do: anything that is rare
	taskMessage                      // peer, msg
	taskData                         // peer, piece, off, buf
	taskPutDone                      // peer, piece
	taskRead                         // peer, rng, off, buf: data that was read
	taskPlaced                       // peer, rng, n: a read that was put in place has ended, well if n is 1
	taskUnregistered                 // piece.Op, err: its buffer could not be registered
	taskLost                         // peer, err
	taskReport                       // rep: chunks that a receive worker placed
	taskSent                         // op, n: chunks that the send worker has sent
	taskClaimed                      // op, id: a read may be made
	taskQuiet                        // op: a worker no longer touches its buffers
	taskTick                         // the clock went off
	taskDigest                       // op, id: the sum of what it received

	// For workers.
	cmdOpen      // lane
	cmdClose     // lane
	cmdClaim     // lane, id, psn, n; answered with taskClaimed
	cmdQuiet     // lane or op; answered with taskQuiet
	cmdMulticast // op, sub, psn, n; answered with taskSent
	cmdStop      // at the end
)

// A task is one entry of a queue. Which fields count depends on the kind.
type task struct {
	next   *task
	kind   taskKind
	peer   int
	sub    int
	psn, n uint32
	id     uint64
	off    int64
	op     *operation
	lane   *lane
	call   *call
	rep    *report
	buf    *fabric.Buffer
	piece  fabric.Piece
	kept   bool // taskData: it came before its operation
	rng    fabric.Range
	msg    protocol.Msg
	err    error
	do     func()
}

var tasks = sync.Pool{New: func() any { return new(task) }}

func newTask(k taskKind) *task {
	t := tasks.Get().(*task)
	t.kind = k
	return t
}

func (t *task) free() {
	*t = task{}
	tasks.Put(t)
}

// run is consecutive chunks of one operation's subgroup.
type run struct {
	op     *operation
	psn, n uint32
}

// A report is what a receive worker did since the last one.
type report struct {
	sub     int
	runs    []run
	chunks  uint32
	ignored node.Ignored
	comm    uint32 // of what was ignored, as far as it is known
}

const maxRuns = 64

var reports = sync.Pool{New: func() any { return &report{runs: make([]run, 0, maxRuns)} }}

func (r *report) free() {
	clear(r.runs)
	*r = report{runs: r.runs[:0]}
	reports.Put(r)
}
