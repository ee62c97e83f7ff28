package engine

import (
	"bytes"
	"errors"

	"github.com/allcast/allcast/internal/fabric"
	"github.com/allcast/allcast/internal/protocol"
)

// eager is the size up to which point-to-point calls do not wait for the others to make
// them too.
const eager = 256 << 10

// maxEarly bounds what is kept of one peer for each communicator: it is at most 8 calls
// ahead, and sends us the result twice in one at most, in parts.
const maxEarly = 16 * eager

// early is data for operations that this rank has not begun.
type early struct {
	tasks map[fabric.OpKey][]*task
	bytes []int // by peer
}

func newEarly(size int) early {
	return early{tasks: map[fabric.OpKey][]*task{}, bytes: make([]int, size)}
}

// keep keeps data for an operation that will begin, if there will be one.
func (e *Engine) keep(now protocol.Time, t *task) {
	if !e.node.Early(t.peer, t.piece.Op.Comm, t.piece.Op.Seq, t.piece.Len) {
		return
	}
	n := len(t.buf.B)
	if int64(n) != t.piece.Len {
		// Parts would have to be put together again; no fabric cuts one so small.
		e.lost(now, t.peer, errors.New("it sent a small piece in parts"))
		return
	}
	if e.early.bytes[t.peer]+n > maxEarly*len(e.names) {
		e.lost(now, t.peer, errors.New("it sent more than a correct peer does before we make the calls"))
		return
	}
	e.early.bytes[t.peer] += n
	k := newTask(taskData)
	k.kept = true
	k.peer, k.piece, k.off, k.buf = t.peer, t.piece, t.off, &fabric.Buffer{B: bytes.Clone(t.buf.B)}
	e.early.tasks[t.piece.Op] = append(e.early.tasks[t.piece.Op], k)
}

// recall hands over what was kept for an operation that begins.
func (e *Engine) recall(key fabric.OpKey) {
	if len(e.early.tasks) == 0 {
		return
	}
	for _, t := range e.early.tasks[key] {
		e.early.bytes[t.peer] -= len(t.buf.B)
		e.tasks.push(t)
	}
	delete(e.early.tasks, key)
}

// forgetEarly is for a communicator that broke.
func (e *Engine) forgetEarly(comm uint32) {
	for key, tasks := range e.early.tasks {
		if key.Comm != comm {
			continue
		}
		for _, t := range tasks {
			e.early.bytes[t.peer] -= len(t.buf.B)
			t.free()
		}
		delete(e.early.tasks, key)
	}
}
