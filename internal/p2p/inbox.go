package p2p

// An Inbox decides where the pieces belong that peers send to one operation of this rank, and knows
// which of them are in place. Whoever takes a piece from the network asks the Inbox, moves or adds
// the bytes, and reports to the Executor how far the Inbox is. One caller at a time uses it.
//
// Pieces of a reduction are added in the plan's order, whatever arrives first: floats then give the
// same bits in every run. A piece that comes before its turn is held. The caller that completes the
// piece before it adds it.
type Inbox struct {
	plan    *Plan
	state   []pieceState // by receive
	prefix  int          // the first so many receives are complete
	left    int          // receives that are not
	foreign uint64       // pieces that nobody expects

	someState [12]pieceState // most plans are small
}

type pieceState uint8

const (
	pieceAwaited pieceState = iota
	pieceTaken              // a caller is placing or adding it
	pieceKept               // it is arriving, before its turn
	pieceHeld               // it has arrived, before its turn
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

// Take claims the nth piece from a peer, which is length bytes long, and returns the number of the
// receive that it is. If hold, its bytes are kept until Next names that number. It reports false if
// nobody expects the piece.
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

// Arrived says that all bytes of receive i, which Take claimed, have been placed, added or kept.
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

// Next returns the receive whose turn has come while it was held, and claims it for the caller: it
// adds the bytes that were kept, and then calls Arrived. -1: there is none.
func (b *Inbox) Next() int {
	if b.prefix < len(b.state) && b.state[b.prefix] == pieceHeld {
		b.state[b.prefix] = pieceTaken
		return b.prefix
	}
	return -1
}

// Recv is a receive of the plan.
func (b *Inbox) Recv(i int) *Recv { return &b.plan.Recvs[i] }

// Progress is how far the Inbox is: the first so many receives are complete, and so many are not.
func (b *Inbox) Progress() (prefix, left int) { return b.prefix, b.left }

// Foreign is how many pieces came that nobody expected.
func (b *Inbox) Foreign() uint64 { return b.foreign }
