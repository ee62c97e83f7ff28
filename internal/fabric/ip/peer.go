package ip

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/allcast/allcast/internal/fabric"
	"github.com/allcast/allcast/internal/fabric/session"
)

// peer is another rank. It has at most three goroutines. write sends the queue. link dials, and then
// watches the connection that write uses. A reader reads the connection that the peer dialled.
type peer struct {
	t    *TCP
	rank int

	wake  chan struct{} // wakes write
	quiet chan struct{} // closed when the handler ignores the peer
	sent  atomic.Uint64
	recvd atomic.Uint64

	mu      sync.Mutex
	links   session.Links
	writing bool // write runs
	muted   bool // quiet is closed
	cut     bool // write must stop using the memory of cancelled pieces
	busy    bool // write is sending something
	corked  bool // the queue waits for the next message
	unlink  context.CancelFunc
	timer   *time.Timer // makes the peer vanish
	out     *net.TCPConn
	auth    authLink // of out; used by one sender at a time
	now     peerDirect
	in      *peerIn

	q, cur peerQueue      // filled by callers; sent by write
	flying []fabric.Piece // pieces whose PutDone is due once write has sent its batch
	reads  session.Reads  // reads of the peer that wait for an answer
}

func newPeer(t *TCP, rank int) *peer {
	return &peer{t: t, rank: rank, wake: make(chan struct{}, 1), quiet: make(chan struct{}), reads: session.Reads{}}
}

// kick wakes write.
func (p *peer) kick() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// start starts the goroutines that send the queue. p.mu is held, and the network is not closed.
func (p *peer) start() {
	if !p.writing {
		p.writing = true
		p.t.wg.Go(func() { (&peerWriter{p: p}).run() })
	}
	if p.links.Dial() {
		var ctx context.Context
		ctx, p.unlink = context.WithCancel(p.t.ctx)
		p.t.wg.Go(func() { p.link(ctx) })
	}
	p.kick()
}

// frame queues a small frame, and sends it unless more follows.
func (p *peer) frame(h *session.Frame, payload []byte, more bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.links.CanSend() {
		p.write(h, payload, more)
	}
}

// write is frame, with p.mu held.
func (p *peer) write(h *session.Frame, payload []byte, more bool) {
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

// direct writes the queue, and behind after it, as far as the socket takes them without blocking. It
// reports whether all was written; the rest is queued. p.mu is held, and the writer is idle. The
// writer meets any error again.
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

// peerCopy is the largest piece that is copied to the queue: waking the writer costs more.
const peerCopy = 64 << 10

// small reports whether a piece of n bytes is sent without the writer. A piece that is written
// directly may be larger, since only the rest that the socket refuses is copied. p.mu is held.
func (p *peer) small(n int) bool {
	return n <= peerCopy || n <= session.MaxPart && peerGathers && p.auth.out == nil && p.idle()
}

// idle reports whether new frames may be written directly. p.mu is held.
func (p *peer) idle() bool {
	return p.out != nil && !p.busy && !p.cut && (len(p.q.items) == 0 || p.corked)
}

// put queues a piece. When the peer is gone, write only reports the end of the put.
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
	case !p.links.CanSend():
		p.flying = append(p.flying, piece)
	default:
		p.q.items = append(p.q.items, peerItem{kind: itemPiece, piece: piece, data: data})
	}
	p.start()
}

// putCopy sends a small piece or queues a copy of it, and reports whether it did.
func (p *peer) putCopy(piece fabric.Piece, data []byte) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.small(len(data)) || len(p.q.arena)+len(data) > peerKeepBytes || !p.links.CanSend() || p.t.closed.Load() {
		return false
	}
	p.write(&session.Frame{Kind: session.Data, N: len(data), Op: piece.Op, Nth: piece.Nth, Len: piece.Len}, data, false)
	return true
}

// answer queues the answer to a read.
func (p *peer) answer(r fabric.ReadRequest) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.links.CanSend() {
		return nil
	}
	if err := p.reads.Begin(r.Op); err != nil {
		return err
	}
	p.corked = false
	p.q.items = append(p.q.items, peerItem{kind: itemAnswer, read: r, size: r.Len()})
	p.start()
	return nil
}

// answered counts an answer that is about to be sent, or was refused: the peer may read again.
func (p *peer) answered(op fabric.OpKey) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.reads.End(op)
}

// cancel makes write give up the pieces of an operation, also one that it is sending.
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
		_ = p.out.SetWriteDeadline(past)
	}
	p.kick()
}

// drop ends the connections in order: the peer receives what is queued, and both sides say goodbye,
// within a bound. The handler hears nothing more of the peer.
func (p *peer) drop(bound time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.muted {
		p.muted = true
		close(p.quiet)
	}
	p.act(p.links.Drop(), bound)
	p.kick()
}

// act does what the session says, but for reporting a loss. p.mu is held.
func (p *peer) act(n session.Next, bound time.Duration) {
	switch {
	case n.Leave:
		p.after(bound)
	case n.Grace:
		p.after(peerGrace)
	}
	if n.GoodbyeIn {
		// The only frame in this direction: it always fits the socket's buffer.
		_, _ = p.in.conn.Write(p.in.link.wrap((&session.Frame{Kind: session.Goodbye}).AppendStream(nil)))
		_ = p.in.conn.CloseWrite()
	}
	if n.Vanish {
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
			p.timer = nil
			p.act(p.links.Vanish(), 0)
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

// report tells the handler that the peer is lost, if it is. No reader runs, so Lost comes after all
// that the peer has sent.
func (p *peer) report(n session.Next) {
	if n.Lost != nil {
		p.t.log.Debug("lost", "peer", p.rank, "err", n.Lost)
		p.t.h.Lost(p.rank, n.Lost)
	}
}

// outEnded says that this rank's connection is unusable: the peer closed it, a write
// failed, or it could not be made.
func (p *peer) outEnded(err error) {
	p.mu.Lock()
	ended := p.links.OutDead()
	n := p.links.OutEnded(err)
	if !ended {
		p.unlink()
		if p.out != nil {
			_ = p.out.Close()
			p.t.conns.Add(-1)
		}
	}
	p.act(n, peerFlush)
	p.mu.Unlock()
	p.report(n)
}

// heardBye says that the peer, which has no connection of its own, said goodbye on this rank's.
func (p *peer) heardBye() {
	p.mu.Lock()
	n := p.links.OutGoodbye()
	p.act(n, peerFlush)
	p.mu.Unlock()
	p.report(n)
}

// admit takes the connection that the peer dialled.
func (p *peer) admit(c peerConn, l authLink) (*peerIn, authVerdict) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch p.links.Admit() {
	case session.Left:
		return nil, authLeft
	case session.Duplicate:
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
	if errors.Is(err, io.EOF) {
		err = errors.New("the connection closed without a goodbye")
	}
	p.mu.Lock()
	p.in = nil
	n := p.links.InEnded(err)
	p.act(n, peerFlush)
	p.mu.Unlock()
	p.report(n)
}
