package engine

import (
	"testing"

	"github.com/allcast/allcast/internal/fabric"
)

// unplaced is a lane in which nothing is placed; chunks that come to the worker are its.
type unplaced struct{ fabric.Placed }

func (unplaced) Scan(runs []fabric.Run) []fabric.Run  { return runs }
func (unplaced) Ignored() (dup, late, foreign uint64) { return 0, 0, 0 }
func (unplaced) Take(uint32) bool                     { return true }

// Who waits does not look while much is still to be placed, but what was fetched, or came
// to the worker, never will be: it must not count once the operation has ended, or has it.
func TestBulkEnds(t *testing.T) {
	e := bare(t)
	w := newReceiver(e, 0, nil)
	w.polled = true
	e.recvs = []*receiver{w}
	op := bigBroadcast(t, manyChunks)
	mem := make([]byte, manyChunks*benchChunk)
	op.mem.Store(&mem)
	l := &lane{op: op, mem: &op.mem, placed: unplaced{}, left: manyChunks}
	w.ops[op.token] = l
	look := func(want bool) {
		t.Helper()
		if e.look(); e.bulk.Load() != want {
			t.Errorf("bulk: %v", !want)
		}
	}
	look(true)
	w.take(l, mem, 0, mem[:benchChunk])
	look(false)
	l.left = manyChunks // fetched instead
	look(true)
	op.mem.Store(nil) // the operation has ended; the worker does not know yet
	look(false)
	e.discard()
}
