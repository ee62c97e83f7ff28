package ip

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/allcast/allcast/internal/fabric"
)

// peerState is how much we have to do with a peer.
type peerState uint8

const (
	peerOpen    peerState = iota
	peerLeaving           // dropped, or one of us said goodbye: what is queued is sent, within a bound
	peerGone              // no connections, and nothing is sent any more
)

// peer is another rank. Three goroutines work for it at most: write sends
// what is queued, link dials and then watches the connection that write uses, and
// a reader takes what the peer sends on the connection that it dialled.
type peer struct {
	t    *TCP
	rank int

	wake  chan struct{} // to write
	quiet chan struct{} // closed when the handler wants to hear nothing more
	sent  atomic.Uint64
	recvd atomic.Uint64

	mu      sync.Mutex
	state   peerState
	writing bool // write runs
	linking bool // link runs, or ran
	muted   bool // quiet is closed
	told    bool // Handler.Lost was called, or never will be
	bye     bool // the peer said goodbye on our connection
	said    bool // we said goodbye on our connection
	dead    bool // our connection failed, or could not be made
	deadErr error
	cut     bool // write must stop touching cancelled pieces
	busy    bool // the writer has something in hand
	corked  bool // what is queued waits for what follows it
	unlink  context.CancelFunc
	timer   *time.Timer // makes it peerGone, or ends the grace of the reader
	out     *net.TCPConn
	auth    authLink // of out: who sends uses it, one at a time
	now     peerDirect
	in      *peerIn

	q, cur peerQueue            // filled by callers; being sent by write
	flying []fabric.Piece       // pieces whose last byte is with write, or done, and whose PutDone is due
	reads  map[fabric.OpKey]int // the peer's that wait for an answer
}

func newPeer(t *TCP, rank int) *peer {
	return &peer{t: t, rank: rank, wake: make(chan struct{}, 1), quiet: make(chan struct{}), reads: map[fabric.OpKey]int{}}
}

// kick makes write look again.
func (p *peer) kick() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// start sees that the goroutines run which send what has been queued. p.mu is held,
// and the network is not closed.
func (p *peer) start() {
	if !p.writing {
		p.writing = true
		p.t.wg.Go(func() { (&peerWriter{p: p}).run() })
	}
	if !p.linking && p.state == peerOpen {
		p.linking = true
		var ctx context.Context
		ctx, p.unlink = context.WithCancel(p.t.ctx)
		p.t.wg.Go(func() { p.link(ctx) })
	}
	p.kick()
}

// frame queues a small frame, and sends it unless more is to come.
func (p *peer) frame(h *frameHeader, payload []byte, more bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.state == peerOpen && !p.dead {
		p.write(h, payload, more)
	}
}

// write is frame, with p.mu held.
func (p *peer) write(h *frameHeader, payload []byte, more bool) {
	idle := p.idle()
	var behind []byte
	if peerGathers && idle && !more && p.auth.out == nil {
		payload, behind = nil, payload
	}
	p.q.frame(h, payload)
	p.corked = idle && more
	if p.corked || idle && p.direct(behind) {
		return
	}
	p.start()
}

// direct writes what is queued, and more behind it, as far as the socket takes it at
// once, and says whether that was all; the rest is queued. p.mu is held, and the writer
// waits for something to do. What goes wrong shows again when the writer tries.
func (p *peer) direct(behind []byte) bool {
	if p.auth.out != nil {
		p.q.protect(p.auth.out)
	}
	it := &p.q.items[0]
	b := p.q.arena[it.from:it.to]
	raceSend(p.t.cfg.Rank, b, behind)
	n := p.now.send(p.out, b, behind)
	p.sent.Add(uint64(n))
	if n == len(b)+len(behind) {
		p.q.reset()
		return true
	}
	it.from += min(n, len(b))
	p.q.arena = append(p.q.arena, behind[max(0, n-len(b)):]...)
	it.to = len(p.q.arena)
	return false
}

// peerCopy is the size up to which a piece is copied to the queue: to wake the writer
// costs more.
const peerCopy = 64 << 10

// small reports whether a piece of n bytes is not worth the writer. What is written at
// once is larger: only what the socket does not take is copied. p.mu is held.
func (p *peer) small(n int) bool {
	return n <= peerCopy || n <= frameMaxPart && peerGathers && p.auth.out == nil && p.idle()
}

// idle reports whether what is queued now may be written at once. p.mu is held.
func (p *peer) idle() bool {
	return p.out != nil && !p.busy && !p.cut && (len(p.q.items) == 0 || p.corked)
}

// put queues a piece. When the peer is gone only write remains, to say that it is done.
func (p *peer) put(piece fabric.Piece, data []byte) {
	if p.putCopy(piece, data) {
		p.t.h.PutDone(p.rank, piece)
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.corked = false
	switch {
	case p.t.closed.Load():
		return
	case p.state != peerOpen || p.dead:
		p.flying = append(p.flying, piece)
	default:
		p.q.items = append(p.q.items, peerItem{kind: frameData, piece: piece, data: data})
	}
	p.start()
}

// putCopy sends a small piece, or a copy of it later, and says whether it did.
func (p *peer) putCopy(piece fabric.Piece, data []byte) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.small(len(data)) || len(p.q.arena)+len(data) > peerKeepBytes || p.state != peerOpen || p.dead || p.t.closed.Load() {
		return false
	}
	p.write(&frameHeader{kind: frameData, n: len(data), op: piece.Op, nth: piece.Nth, len: piece.Len}, data, false)
	return true
}

// answer queues the answer to a read.
func (p *peer) answer(r fabric.ReadRequest) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.state != peerOpen || p.dead {
		return nil
	}
	if p.reads[r.Op] == fabric.MaxReads {
		return fmt.Errorf("%w: more than %d reads of an operation at a time", errFrame, fabric.MaxReads)
	}
	p.reads[r.Op]++
	p.corked = false
	p.q.items = append(p.q.items, peerItem{kind: frameAnswer, read: r, size: r.Len()})
	p.start()
	return nil
}

// answered notes that an answer is about to be sent, or refused: the peer may ask again.
func (p *peer) answered(op fabric.OpKey) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.reads[op]--; p.reads[op] == 0 {
		delete(p.reads, op)
	}
}

// cancel makes write give up the pieces of an operation, now if it is sending one.
func (p *peer) cancel(op fabric.OpKey) {
	p.mu.Lock()
	defer p.mu.Unlock()
	found := p.q.cancel(op)
	if p.cur.cancel(op) {
		found = true
	}
	for i := range p.flying {
		if p.flying[i].Op == op {
			found = true
		}
	}
	if !found {
		return
	}
	p.cut = true
	if p.out != nil {
		_ = p.out.SetWriteDeadline(time.Unix(1, 0))
	}
	p.kick()
}

// drop ends what we have to do with the peer: we let it have what is queued, say
// goodbye and wait for it to do the same, all that within a bound.
func (p *peer) drop(bound time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.told = true
	if !p.muted {
		p.muted = true
		close(p.quiet)
	}
	p.leave(bound)
	p.kick()
}

// leave turns to peerLeaving. p.mu is held.
func (p *peer) leave(bound time.Duration) {
	if p.state != peerOpen {
		return
	}
	p.state = peerLeaving
	p.after(bound)
	if !p.linking && p.in != nil {
		// The one frame that goes this way: it always fits the socket's buffer.
		_, _ = p.in.conn.Write(p.in.link.wrap(frameAppend(nil, &frameHeader{kind: frameGoodbye})))
		_ = p.in.conn.CloseWrite()
	}
	p.settle()
	p.kick()
}

// settle turns from peerLeaving to peerGone when both connections are done. p.mu is held.
func (p *peer) settle() {
	if p.state == peerLeaving && p.in == nil && (!p.linking || p.dead) {
		p.vanish()
	}
}

// vanish turns to peerGone. p.mu is held.
func (p *peer) vanish() {
	p.state = peerGone
	p.stopTimer()
	if p.unlink != nil {
		p.unlink()
	}
	if p.out != nil {
		_ = p.out.Close()
	}
	if p.in != nil {
		p.in.close()
	}
	p.kick()
}

// after makes the peer vanish after a time. p.mu is held.
func (p *peer) after(d time.Duration) {
	p.stopTimer()
	p.t.wg.Add(1)
	var mine *time.Timer
	mine = time.AfterFunc(d, func() {
		defer p.t.wg.Done()
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.timer == mine {
			p.vanish()
		}
	})
	p.timer = mine
}

func (p *peer) stopTimer() {
	if p.timer != nil && p.timer.Stop() {
		p.t.wg.Done()
	}
	p.timer = nil
}

// lose tells the handler that the peer is lost. Whoever calls it makes sure that no
// reader runs, so Lost comes after all that the peer has said.
func (p *peer) lose(err error) {
	p.mu.Lock()
	told := p.told
	p.told = true
	if errors.Is(err, fabric.ErrGoodbye) {
		p.leave(peerFlush)
	} else {
		p.vanish()
	}
	p.mu.Unlock()
	if !told {
		p.t.log.Debug("lost", "peer", p.rank, "err", err)
		p.t.h.Lost(p.rank, err)
	}
}

// outEnded says that our connection cannot be used any more: the peer closed it, a
// write failed, or it could not be made.
func (p *peer) outEnded(err error) {
	p.mu.Lock()
	if p.dead {
		p.mu.Unlock()
		return
	}
	if p.bye {
		err = fabric.ErrGoodbye
	}
	p.dead, p.deadErr = true, err
	p.unlink()
	if p.out != nil {
		_ = p.out.Close()
		p.t.conns.Add(-1)
	}
	p.settle()
	p.kick()
	lost := p.state == peerOpen && p.in == nil
	if p.state == peerOpen && p.in != nil {
		p.after(peerGrace)
	}
	p.mu.Unlock()
	if lost {
		p.lose(err)
	}
}

// heardBye says that the peer said goodbye on our connection, as it has none.
func (p *peer) heardBye() {
	p.mu.Lock()
	p.bye = true
	lost := p.state == peerOpen && p.in == nil
	p.mu.Unlock()
	if lost {
		p.lose(fabric.ErrGoodbye)
	}
}

// admit takes the connection that the peer dialled.
func (p *peer) admit(c peerConn, l authLink) (*peerIn, authVerdict) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.state != peerOpen || p.dead {
		return nil, authLeft
	}
	if p.in != nil {
		return nil, authTwice
	}
	p.in = newPeerIn(p, c, l)
	p.t.conns.Add(1)
	return p.in, authOK
}

// inEnded says that the reader has ended.
func (p *peer) inEnded(in *peerIn, err error) {
	in.close()
	in.ended()
	p.t.conns.Add(-1)
	p.mu.Lock()
	p.in = nil
	lost := !p.told
	switch {
	case p.bye:
		err = fabric.ErrGoodbye
	case p.dead && !errors.Is(err, fabric.ErrGoodbye):
		err = p.deadErr
	case errors.Is(err, io.EOF):
		err = errors.New("the connection closed without a goodbye")
	}
	p.settle()
	p.mu.Unlock()
	if lost {
		p.lose(err)
	}
}
