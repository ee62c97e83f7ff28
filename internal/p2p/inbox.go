package p2p

// An Inbox decides where the pieces of one operation belong on this rank, and records which of them
// are in place. The receiver of a piece asks the Inbox, moves or adds the bytes, and reports the
// Inbox's progress to the Executor. One caller at a time uses it.
//
// Pieces of a reduction are added in the plan's order, whatever arrives first, so that floats give the
// same bits in every run. A piece that arrives before its turn is held. The caller that completes the
// previous piece adds it.
type Inbox struct {
	plan    *Plan
	state   []pieceState // by receive
	prefix  int          // number of leading receives that are complete
	left    int          // number of incomplete receives
	foreign uint64       // number of unexpected pieces

	someState [12]pieceState // backing array for small plans, which are the common case
}

type pieceState uint8

const (
	pieceAwaited pieceState = iota
	pieceTaken              // a caller is placing or adding it
	pieceKept               // it is arriving before its turn
	pieceHeld               // it has arrived before its turn
	pieceDone
)

// NewInbox returns the Inbox of a rank that runs a plan.
func NewInbox(p *Plan) *Inbox {
	b := &Inbox{plan: p, left: len(p.Recvs)}
	if b.state = b.someState[:]; b.left > len(b.state) {
		b.state = make([]pieceState, b.left)
	}
	b.state = b.state[:b.left]
	return b
}

// Take claims the nth piece from a peer and returns the index of its receive. If hold is set, the
// caller keeps the bytes until Next returns that index. Take returns false if the piece, or its
// length, is unexpected.
func (b *Inbox) Take(from int, nth uint32, length int64) (i int, r *Recv, hold, ok bool) {
	var recvs []int32
	if c := b.plan.contact(from); c >= 0 {
		recvs = b.plan.peers[c].recvs
	}
	if int(nth) >= len(recvs) {
		b.foreign++
		return 0, nil, false, false
	}
	i = int(recvs[nth])
	r = &b.plan.Recvs[i]
	if b.state[i] != pieceAwaited || r.Len != length {
		b.foreign++
		return 0, nil, false, false
	}
	b.state[i] = pieceTaken
	if r.Reduce && i > b.prefix {
		b.state[i] = pieceKept
		return i, r, true, true
	}
	return i, r, false, true
}

// Arrived records that all bytes of receive i, which Take claimed, have been placed, added or kept.
func (b *Inbox) Arrived(i int) {
	if b.state[i] == pieceKept {
		b.state[i] = pieceHeld
		return
	}
	b.state[i] = pieceDone
	b.left--
	for b.prefix < len(b.state) && b.state[b.prefix] == pieceDone {
		b.prefix++
	}
}

// Next returns a held receive whose turn has come, and claims it for the caller. The caller adds the
// kept bytes and then calls Arrived. Next returns -1 if there is none.
func (b *Inbox) Next() int {
	if b.prefix < len(b.state) && b.state[b.prefix] == pieceHeld {
		b.state[b.prefix] = pieceTaken
		return b.prefix
	}
	return -1
}

// Recv returns a receive of the plan.
func (b *Inbox) Recv(i int) *Recv { return &b.plan.Recvs[i] }

// Progress returns the number of leading receives that are complete, and of incomplete receives.
func (b *Inbox) Progress() (prefix, left int) { return b.prefix, b.left }

// Foreign returns the number of unexpected pieces.
func (b *Inbox) Foreign() uint64 { return b.foreign }
