package datapath

import "github.com/allcast/allcast/internal/seal"

// maxInlineDigest is the size up to which control's goroutine computes a digest. A larger digest would
// keep other operations waiting.
const maxInlineDigest = 256 << 10

// Digest computes the digest of what an operation received: all of it is in place, and nobody writes
// there any more. A large one is not done when Digest returns, and a Digested event reports it.
func (op *Operation) Digest() (sum uint64, done bool) {
	mem := *op.bufs.mem
	if op.geo.Bytes() <= maxInlineDigest {
		return op.digest(mem), true
	}
	op.users++
	go func() { op.d.sink.Report(Event{Kind: Digested, Op: op, Sum: op.digest(mem)}) }()
	return 0, false
}

// digest is a CRC32C, and the length so that nothing is not mistaken for zeros. It stops when the
// operation fails, because its caller waits for the memory.
func (op *Operation) digest(mem []byte) uint64 {
	const part = 1 << 20
	var sum uint32
	op.geo.Spans(func(off, n int64) {
		for n > 0 && !op.cancelled.Load() {
			k := min(n, part)
			sum = seal.Sum(sum, mem[off:off+k])
			off, n = off+k, n-k
		}
	})
	return uint64(op.geo.Bytes())<<32 | uint64(sum)
}
