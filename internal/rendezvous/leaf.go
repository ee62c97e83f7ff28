package rendezvous

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"
)

// leaf is the part of the star on ranks other than 0. A goroutine reads all the time, so that the rank notes
// a verdict when it arrives, not at its next call.
type leaf struct {
	rank, size int
	conn       net.Conn
	differs    bool       // only one side seals, so that only a verdict can follow
	frames     chan frame // welcome, all

	dead chan struct{} // closed by the reader, after it set err
	err  error         // reason why the connection ended
	told bool          // err comes from rank 0

	ending sync.Once
	done   chan struct{} // closed when this rank leaves
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
	defer func() { _ = l.conn.Close() }() // rank 0 waits for it
	lim, root := fromRoot(l.size), l.conn.RemoteAddr()
	for {
		f, err := readFrame(l.conn, lim)
		if err != nil {
			l.err = lostRoot(err, "rank 0 at %v is gone: %v", root, err)
			return
		}
		switch f.typ {
		case frameVerdict:
			var v verdict
			v, err = decodeVerdict(f.payload)
			l.err = v.err()
		case frameLeave:
			var why reason
			why, err = decodeLeave(f.payload)
			l.err = lostRoot(nil, "rank 0 at %v %v", root, why)
		default:
			select {
			case l.frames <- f:
				continue
			case <-l.done:
				return
			}
		}
		if l.told = err == nil; !l.told {
			l.err = lostRoot(err, "rank 0 at %v: %v", root, err)
		}
		return
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
		case <-l.dead: // it says more than the end of ctx
			return nil, l.whyDead()
		default:
		}
		why := reasonOf(ctx)
		l.leave(leaveFrame(why))
		return nil, fmt.Errorf("rendezvous: exchange %d: rank %d %v for rank 0 at %v: %w",
			seq, l.rank, why, l.conn.RemoteAddr(), context.Cause(ctx))
	}
}

// write sends a whole frame, or else ends the connection.
func (l *leaf) write(ctx context.Context, f []byte) error {
	err := writeUntil(ctx, l.conn, f)
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		l.leave(nil)
		return fmt.Errorf("rendezvous: rank %d at rank 0: %w", l.rank, context.Cause(ctx))
	}
	// Frames that arrived before the connection broke may say why.
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

// leave ends the connection after a last frame; nil if the stream ends within a frame.
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
