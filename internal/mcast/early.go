package mcast

// early holds the datagrams of eager calls that this rank has not made yet. The Window bounds what
// correct peers send: at most WindowCalls calls per communicator. The memory is allocated when it is first
// needed, and reused.
type early struct {
	calls map[uint64]*earlyCall // by token
	count map[uint32]int        // by communicator: number of calls
	spare []*earlyCall
}

// earlyCall holds the datagrams of one call.
type earlyCall struct {
	comm  uint32
	seen  [1 << eagerPSNs / 64]uint64 // chunks that are kept
	grams []earlyGram
	bytes []byte // payloads one after the other, at most earlyBytes
}

type earlyGram struct {
	imm, sum uint32
	end      int // offset in bytes at which the payload ends
}

// earlyBytes is the size of the payloads of one call, with room for what a fabric adds to each of them.
const earlyBytes = EagerBytes + 32*maxEagerChunks

// Keeps reports whether datagrams with a token are kept for a later call.
func (in *Intake) Keeps(token uint64) bool { return in.early.calls[token] != nil }

// Kept returns the number of calls for which datagrams are kept.
func (in *Intake) Kept() int { return len(in.early.calls) }

// Keep keeps a datagram of a call that this rank has not made yet. The driver has checked that the token
// belongs to such a call. A datagram that does not fit is lost, and fetched later.
func (in *Intake) Keep(token uint64, comm, imm, sum uint32, payload []byte) bool {
	e := &in.early
	k := e.calls[token]
	if k == nil {
		if e.count[comm] == WindowCalls {
			return false
		}
		if e.calls == nil {
			e.calls, e.count = map[uint64]*earlyCall{}, map[uint32]int{}
		}
		if n := len(e.spare); n > 0 {
			k, e.spare = e.spare[n-1], e.spare[:n-1]
		} else {
			k = &earlyCall{}
		}
		k.comm = comm
		e.calls[token] = k
		e.count[comm]++
	}
	_, psn := in.layout.Split(imm)
	psn &= 1<<eagerPSNs - 1
	word, bit := &k.seen[psn/64], uint64(1)<<(psn%64)
	if *word&bit != 0 || len(payload) > earlyBytes-len(k.bytes) {
		return false
	}
	*word |= bit
	k.bytes = append(k.bytes, payload...)
	k.grams = append(k.grams, earlyGram{imm, sum, len(k.bytes)})
	return true
}

// Recall calls f with each datagram that was kept for a token, and forgets them. The driver calls it after
// Open, and handles the datagrams as if they had arrived now.
func (in *Intake) Recall(token uint64, f func(imm, sum uint32, payload []byte)) {
	k := in.early.calls[token]
	if k == nil {
		return
	}
	from := 0
	for _, g := range k.grams {
		f(g.imm, g.sum, k.bytes[from:g.end])
		from = g.end
	}
	in.early.drop(token, k)
}

// Forget drops the datagrams that are kept for a communicator.
func (in *Intake) Forget(comm uint32) {
	for token, k := range in.early.calls {
		if k.comm == comm {
			in.early.drop(token, k)
		}
	}
}

func (e *early) drop(token uint64, k *earlyCall) {
	delete(e.calls, token)
	if e.count[k.comm]--; e.count[k.comm] == 0 {
		delete(e.count, k.comm)
	}
	*k = earlyCall{grams: k.grams[:0], bytes: k.bytes[:0]}
	if len(e.spare) < WindowCalls {
		e.spare = append(e.spare, k)
	}
}
