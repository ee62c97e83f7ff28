package engine

import (
	"sync"

	"github.com/allcast/allcast/internal/fabric"
	"github.com/allcast/allcast/internal/mcast"
	"github.com/allcast/allcast/internal/wire"
)

type taskKind uint8

const (
	taskCall       taskKind = iota // call: the application made it
	taskDo                         // do: anything that is rare
	taskMessage                    // peer, msg
	taskData                       // peer, piece, off, buf: of an operation that was not open
	taskPieces                     // op, peer, id, n: so many of its receives are complete, and so many are not
	taskPutDone                    // peer, piece
	taskReadDone                   // read: it is in place
	taskReadPlaced                 // peer, readID, n: a read that the fabric puts in place has ended, well if n is 1
	taskRegistered                 // piece.Op, err: its buffer was registered, or not
	taskLost                       // peer, err
	taskReport                     // rep, n: what a receive worker did; n is 1 if the kernel received
	taskSent                       // op, n: chunks that the send worker has sent
	taskClaimed                    // read: it may be made
	taskQuiet                      // op: somebody no longer touches its buffers
	taskTick                       // the clock went off
	taskDigest                     // op, id: the sum of what it received
	taskFinished                   // id, err: the result of a call is what its caller wants

	// For workers.
	cmdOpen      // landing
	cmdClose     // landing
	cmdClaim     // read; answered with taskClaimed
	cmdQuiet     // landing or op; answered with taskQuiet
	cmdMulticast // op, sub, psn, n, id: n again, which stays; answered with taskSent
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
	call   *call
	rep    *mcast.Report
	buf    *fabric.Buffer
	piece  fabric.Piece
	readID fabric.ReadID
	msg    wire.Msg

	landing *landing
	read    *read

	err error
	do  func()
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
