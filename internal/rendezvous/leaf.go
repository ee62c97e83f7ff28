package rendezvous

import (
	"context"
	"fmt"
	"net"
	"sync"
	"time"
)

// leaf is a rank's connection to its parent. A goroutine reads all the time, so that the rank notes a verdict
// when it arrives, not at its next call.
type leaf struct {
	parent, size int
	conn         net.Conn
	differs      bool       // only one side seals, so that only a verdict can follow
	frames       chan frame // welcome, all

	dead chan struct{} // closed by the reader, after it set end and told
	end  *verdict      // reason why the connection ended; nil if this rank left
	told bool          // end comes from the parent
	over bool          // end says that the parent closed its session

	out *wholeWriter // writes to conn

	ending sync.Once
	done   chan struct{} // closed when this rank leaves
}

func newLeaf(cfg *Config, parent int, conn net.Conn, differs bool) *leaf {
	l := &leaf{
		parent: parent, size: cfg.Size, conn: conn, differs: differs, out: &wholeWriter{Conn: conn},
		frames: make(chan frame), dead: make(chan struct{}), done: make(chan struct{}),
	}
	go l.read()
	return l
}

func (l *leaf) read() {
	defer close(l.dead)
	defer func() { _ = l.conn.Close() }() // the parent waits for it
	lim := fromParent(l.size)
	for {
		f, err := readFrame(l.conn, lim)
		if err != nil {
			l.end = l.lost(err, " is gone: %v", err)
			return
		}
		switch f.typ {
		case frameVerdict:
			var v verdict
			v, err = decodeVerdict(f.payload)
			l.end = &v
		case frameLeave:
			var why reason
			why, err = decodeLeave(f.payload)
			l.end, l.over = l.lost(nil, " %v", why), why == leftClosed
		default:
			select {
			case l.frames <- f:
				continue
			case <-l.done:
				return
			}
		}
		if l.told = err == nil; !l.told {
			l.end = l.lost(err, ": %v", err)
		}
		return
	}
}

// lost is the verdict of a rank that lost its parent. Its text begins with the parent.
func (l *leaf) lost(cause error, format string, args ...any) *verdict {
	text := fmt.Sprintf("rank %d at %v", l.parent, l.conn.RemoteAddr()) + fmt.Sprintf(format, args...)
	return &verdict{kind: ErrLost, ranks: []int{l.parent}, text: text, cause: cause, size: l.size}
}

// wholeWriter writes frames of several goroutines. When one is cut off, nothing can follow.
type wholeWriter struct {
	net.Conn
	mu  sync.Mutex
	cut error
}

func (w *wholeWriter) Write(b []byte) (n int, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.cut == nil {
		n, w.cut = w.Conn.Write(b)
	}
	return n, w.cut
}

// send writes a whole frame, unless an earlier one was cut off. The end of ctx also ends the write for which it
// may have to wait.
func (l *leaf) send(ctx context.Context, f []byte) error { return writeUntil(ctx, l.out, f) }

// sentence tells the parent that this rank leaves because others are late, and waits for the verdict. It is nil if
// none comes before ctx or the grace period ends.
func (l *leaf) sentence(ctx context.Context, grace time.Duration) *verdict {
	ctx, cancel := context.WithTimeout(ctx, grace)
	defer cancel()
	_ = l.send(ctx, leaveFrame(leftDeadline)) // fails if the parent has ended the connection, maybe with a verdict
	select {
	case <-l.dead:
		if l.told {
			return l.end
		}
	case <-l.frames: // the other ranks came at this moment, but rank 0 knows that this one leaves
	case <-ctx.Done():
	}
	return nil
}

// leave ends the connection after a last frame; nil for none.
func (l *leaf) leave(last []byte) {
	l.ending.Do(func() {
		close(l.done)
		_ = l.conn.SetWriteDeadline(time.Now().Add(time.Second)) // also of a frame that is being written
		if last != nil {
			_ = l.send(context.Background(), last)
		}
		_ = l.conn.Close()
		<-l.dead
	})
}
