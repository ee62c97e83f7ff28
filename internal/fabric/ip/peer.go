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
	quiet chan struct{} // closed by mute: the handler ignores the peer
	mute  func()
	sent  atomic.Uint64
	recvd atomic.Uint64

	mu      sync.Mutex
	links   session.Links
	writing bool // write runs
	unlink  context.CancelFunc
	timer   *time.Timer  // makes the peer vanish
	out     *net.TCPConn // nil before this rank has dialled, and after out has ended
	auth    authLink     // of out; used by one sender at a time
	now     peerDirect
	in      *peerIn
	box     peerOutbox
	reads   session.Reads // reads of the peer that wait for an answer
}

func newPeer(t *TCP, rank int) *peer {
	quiet := make(chan struct{})
	return &peer{
		t: t, rank: rank, wake: make(chan struct{}, 1), reads: session.Reads{},
		quiet: quiet, mute: sync.OnceFunc(func() { close(quiet) }),
	}
}

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
	p.box.next.frame(h, payload)
	p.box.corked = idle && more
	if p.box.corked || idle && p.direct(behind) {
		return
	}
	p.start()
}

// direct writes the queue, and behind after it, as far as the socket takes them without blocking. It
// reports whether all was written; the rest is queued. p.mu is held, and the writer is idle. The
// writer meets any error again.
func (p *peer) direct(behind []byte) bool {
	if p.auth.out != nil {
		p.box.next.protect(p.auth.out)
	}
	it := &p.box.next.items[0]
	b := p.box.next.arena[it.from:it.to]
	raceSend(p.t.cfg.Rank, b, behind)
	n := p.now.send(p.out, b, behind)
	p.sent.Add(uint64(n))
	if n == len(b)+len(behind) {
		p.box.next.reset()
		return true
	}
	it.from += min(n, len(b))
	p.box.next.arena = append(p.box.next.arena, behind[max(0, n-len(b)):]...)
	it.to = len(p.box.next.arena)
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
func (p *peer) idle() bool { return p.out != nil && p.box.idle() }

// put queues a piece, or sends or copies a small one at once.
func (p *peer) put(piece fabric.Piece, data []byte) {
	p.mu.Lock()
	done := p.queue(piece, data)
	p.mu.Unlock()
	if done {
		p.t.h.PutDone(p.rank, piece)
	}
}

// queue is put, and reports whether the put is done. When the peer is gone, write only reports the end of
// the put. p.mu is held.
func (p *peer) queue(piece fabric.Piece, data []byte) (done bool) {
	switch {
	case p.t.closed.Load():
		return false
	case !p.links.CanSend():
		p.box.flying = append(p.box.flying, piece)
	case p.small(len(data)) && len(p.box.next.arena)+len(data) <= peerKeepBytes:
		p.write(&session.Frame{Kind: session.Data, N: len(data), Op: piece.Op, Nth: piece.Nth, Len: piece.Len}, data, false)
		return true
	default:
		p.box.add(peerItem{kind: itemPiece, piece: piece, data: data})
	}
	p.start()
	return false
}

func (p *peer) answer(r fabric.ReadRequest) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.links.CanSend() {
		return nil
	}
	if err := p.reads.Begin(r.Op); err != nil {
		return err
	}
	p.box.add(peerItem{kind: itemAnswer, read: r, size: r.Len()})
	p.start()
	return nil
}

// cancel makes write give up the pieces of an operation, also one that it is sending.
func (p *peer) cancel(op fabric.OpKey) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.box.cancel(op) {
		return
	}
	if p.out != nil {
		_ = p.out.SetWriteDeadline(past)
	}
	p.kick()
}

func (p *peer) state() session.State {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.links.State()
}

// flushed reports whether the kernel has the whole queue, or the peer is gone.
func (p *peer) flushed() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.links.Ended() || len(p.box.next.items) == 0 && !p.box.busy
}

// drop ends the connections in order: the peer receives what is queued, and both sides say goodbye,
// within a bound. The handler hears nothing more of the peer.
func (p *peer) drop(bound time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mute()
	p.act(p.links.Drop(), bound)
}

// act does what the session says, but for reporting a loss. p.mu is held.
func (p *peer) act(n session.Next, bound time.Duration) {
	switch {
	case n.Leave:
		p.after(bound)
	case n.Grace:
		p.after(p.t.cfg.limits.grace)
	}
	if n.GoodbyeIn {
		// The only frame in this direction: it always fits the socket's buffer.
		bye := (&session.Frame{Kind: session.Goodbye}).AppendStream(nil)
		if d := p.in.link.out; d != nil {
			bye = d.Append(nil, bye)
		}
		_, _ = p.in.conn.Write(bye)
		_ = p.in.conn.CloseWrite()
	}
	if n.Vanish {
		if p.timer != nil {
			p.timer.Stop()
		}
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
	if p.timer != nil {
		p.timer.Reset(d)
		return
	}
	p.timer = time.AfterFunc(d, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.act(p.links.Vanish(), 0)
	})
}

// happened tells the session of an event, does what it says, and tells the handler if the peer is lost.
// No reader runs then, so Lost comes after all that the peer has sent.
func (p *peer) happened(event func() session.Next) {
	p.mu.Lock()
	n := event()
	p.act(n, p.t.cfg.limits.flush)
	p.mu.Unlock()
	if n.Lost != nil {
		p.t.log.Debug("lost", "peer", p.rank, "err", n.Lost)
		p.t.h.Lost(p.rank, n.Lost)
	}
}

// outEnded says that this rank's connection is unusable: the peer closed it, a write
// failed, or it could not be made.
func (p *peer) outEnded(err error) {
	p.happened(func() session.Next {
		p.unlink()
		if p.out != nil {
			_ = p.out.Close()
			p.out = nil
		}
		return p.links.OutEnded(err)
	})
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
	return p.in, authOK
}

// inEnded says that the reader has ended.
func (p *peer) inEnded(in *peerIn, err error) {
	in.close()
	if in.b != nil { // of an unfinished frame
		in.b.Release()
		in.b = nil
	}
	if errors.Is(err, io.EOF) {
		err = errors.New("the connection closed without a goodbye")
	}
	p.happened(func() session.Next {
		p.in = nil
		return p.links.InEnded(err)
	})
}
