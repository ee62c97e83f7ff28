package rendezvous

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"
)

// leaf is the part of the star of a rank other than 0. A goroutine reads all the
// time: a verdict is taken when it comes, not when the next call looks for it.
type leaf struct {
	rank, size int
	conn       net.Conn
	differs    bool       // only one of us seals: all that is to come is a verdict
	frames     chan frame // welcome, all

	dead chan struct{} // closed by the reader, after it set err
	err  error         // what ended the connection
	told bool          // rank 0 said it: err is not a guess

	ending sync.Once
	done   chan struct{} // closed: this rank leaves
}

func newLeaf(cfg Config, conn net.Conn, differs bool) *leaf {
	l := &leaf{
		rank: cfg.Rank, size: cfg.Size, conn: conn, differs: differs,
		frames: make(chan frame), dead: make(chan struct{}), done: make(chan struct{}),
	}
	go l.read()
	return l
}

func (l *leaf) read() {
	defer close(l.dead)
	defer func() { _ = l.conn.Close() }() // so that rank 0 need not wait for it
	lim := fromRoot(l.size)
	for {
		f, err := readFrame(l.conn, lim)
		switch {
		case err != nil:
			l.err = lostRoot(err, "rank 0 at %v is gone: %v", l.conn.RemoteAddr(), err)
			return
		case f.typ == frameVerdict:
			v, err := decodeVerdict(f.payload)
			if err != nil {
				l.err = lostRoot(err, "rank 0 at %v: %v", l.conn.RemoteAddr(), err)
				return
			}
			l.err, l.told = v.err(), true
			return
		case f.typ == frameLeave:
			why, err := decodeLeave(f.payload)
			if err != nil {
				l.err = lostRoot(err, "rank 0 at %v: %v", l.conn.RemoteAddr(), err)
				return
			}
			l.told = true
			l.err = lostRoot(nil, "rank 0 at %v %v", l.conn.RemoteAddr(), why)
			return
		}
		select {
		case l.frames <- f:
		case <-l.done:
			return
		}
	}
}

func (l *leaf) exchange(ctx context.Context, seq uint32, blob []byte) ([][]byte, error) {
	select {
	case <-l.dead:
		return nil, l.whyDead()
	default:
	}
	if err := l.write(ctx, blobFrame(seq, blob)); err != nil {
		return nil, err
	}
	select {
	case f := <-l.frames:
		n, all, err := decodeAll(f.payload, l.size)
		if err == nil && (n != seq || f.typ != frameAll) {
			err = fmt.Errorf("%w: exchange %d of rank 0 meets exchange %d", ErrProtocol, n, seq)
		}
		if err != nil {
			l.close()
			return nil, lostRoot(err, "exchange %d: rank 0 at %v: %v", seq, l.conn.RemoteAddr(), err)
		}
		return all, nil
	case <-l.dead:
		return nil, l.whyDead()
	case <-ctx.Done():
		select {
		case <-l.dead: // that is the better answer
			return nil, l.whyDead()
		default:
		}
		why := reasonOf(ctx)
		l.leave(leaveFrame(why))
		return nil, fmt.Errorf("rendezvous: exchange %d: rank %d %v for rank 0 at %v: %w",
			seq, l.rank, why, l.conn.RemoteAddr(), context.Cause(ctx))
	}
}

// write sends a whole frame or ends the connection.
func (l *leaf) write(ctx context.Context, f []byte) error {
	err := writeUntil(ctx, l.conn, f)
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		l.leave(nil)
		return fmt.Errorf("rendezvous: rank %d at rank 0: %w", l.rank, context.Cause(ctx))
	}
	// What was said before the connection broke says why.
	closeWrite(l.conn)
	select {
	case <-l.dead:
		return l.whyDead()
	case <-ctx.Done():
		l.leave(nil)
		return context.Cause(ctx)
	}
}

// whyDead is the error of a connection that ended; dead must be closed.
func (l *leaf) whyDead() error {
	select {
	case <-l.done:
		return fmt.Errorf("rendezvous: %w", ErrClosed)
	default:
		return l.err
	}
}

// leave ends the connection after a last frame, or in the middle of one.
func (l *leaf) leave(last []byte) {
	l.ending.Do(func() {
		close(l.done)
		_ = l.conn.SetWriteDeadline(time.Now().Add(time.Second))
		if last != nil {
			_, _ = l.conn.Write(last)
		}
		_ = l.conn.Close()
		<-l.dead
	})
}

func (l *leaf) close() { l.leave(leaveFrame(leftClosed)) }

func (l *leaf) localAddr() netip.Addr { return addrOf(l.conn.LocalAddr()) }
