package engine

import (
	"github.com/allcast/allcast/internal/seal"
	"github.com/allcast/allcast/internal/step"
)

// digestAtOnce is how much is summed up where the node is run; more would keep the others
// waiting.
const digestAtOnce = 256 << 10

// digest sums up what an operation received. Nobody else writes there any more: all of it
// has come.
func (e *Engine) digest(op *operation) {
	mem := *op.call.mem
	if op.geo.Bytes() <= digestAtOnce {
		e.node.Digested(e.now(), op.key.Comm, op.key.Seq, op.sum(mem))
		return
	}
	op.summing = true
	go func() {
		t := newTask(taskDigest)
		t.op, t.id = op, op.sum(mem)
		e.push(t)
	}()
}

// sum is a CRC32C, with the length so that nothing is not mistaken for zeros. A failed
// operation is not summed up to its end: somebody waits for the memory.
func (op *operation) sum(mem []byte) uint64 {
	const piece = 1 << 20
	var sum uint32
	op.geo.Spans(func(off, n int64) {
		for n > 0 && !op.cancelled.Load() {
			k := min(n, piece)
			sum = seal.Sum(sum, mem[off:off+k])
			off, n = off+k, n-k
		}
	})
	return uint64(op.geo.Bytes())<<32 | uint64(sum)
}

// digested takes the sum.
func (e *Engine) digested(now step.Time, op *operation, sum uint64) {
	op.summing = false
	if e.failing[op.key] == op {
		e.quiet(op)
		return
	}
	if !op.gone {
		e.node.Digested(now, op.key.Comm, op.key.Seq, sum)
	}
}
