package rendezvous

import (
	"context"
	"fmt"
	"net/netip"
	"sync"
	"time"
)

// branch is the part of a rank other than 0: a child of its parent, and a hub for its own children.
type branch struct {
	rank   int
	relays bool  // ranks below this one reach rank 0 only through it
	up     *leaf // connection towards rank 0
	from   *leaf // connection on which results come: up, or one to another rank
	hub    *hub
	spread *spread // nil if this rank passes no results on in a star

	// For a rank that passes nothing on, these are the channels of up. Otherwise a result of an Exchange reaches the
	// children before it reaches this rank.
	frames chan frame
	dead   chan struct{} // closed when no more frames come
	why    *verdict      // reason for that, valid once dead is closed; nil if this rank left

	tasks sync.WaitGroup
}

// start begins to pass frames on, if there is something to pass on.
func (b *branch) start() {
	b.frames, b.dead = b.up.frames, b.up.dead
	if len(b.hub.children()) == 0 && len(b.hub.extra) == 0 && b.from == b.up && b.spread == nil {
		return
	}
	b.frames, b.dead = make(chan frame), make(chan struct{})
	if b.relays {
		b.tasks.Go(b.relayUp)
	}
	b.tasks.Go(b.passDown)
}

// relayUp passes the frames of the ranks below on to rank 0.
func (b *branch) relayUp() {
	for {
		select {
		case ev := <-b.hub.events:
			if b.hub.current(ev) {
				// An error breaks the connection to the parent, whose reader then knows more.
				_ = b.up.send(context.Background(), ev.relay())
			}
		case <-b.hub.done:
			return
		}
	}
}

// passDown passes the results of exchanges on to the children, and finally the reason why the session ends.
func (b *branch) passDown() {
	defer close(b.dead)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	b.tasks.Go(func() { b.hurry(ctx, cancel) })
	up, from := b.up.dead, b.from.dead
	if b.from == b.up {
		from = nil
	}
	var patience <-chan time.Time
	for {
		select {
		case f := <-b.from.frames:
			b.spread.close() // all children have come
			// A child that misses the result has lost its connection, which its reader reports.
			_ = b.hub.deliver(ctx, f.bytes(), "")
			select {
			case b.frames <- f:
			case <-b.up.done:
			}
			continue
		case <-up:
			up, b.why = nil, b.up.end
			if from != nil && b.up.over {
				continue // the last result of rank 0 may still be on its way
			}
		case <-from:
			from = nil
			if up != nil { // rank 0 knows more
				b.why = b.from.end
				if !b.from.told {
					patience = time.After(b.hub.grace)
				}
				continue
			}
		case <-patience:
		}
		if b.why != nil { // nil if this rank leaves by itself
			b.hub.farewell(b.why.frame())
		}
		return
	}
}

// hurry cuts off a result for a child that does not take it, some time after rank 0 or the parent has failed or gone.
func (b *branch) hurry(ctx context.Context, cancel func()) {
	select {
	case <-b.up.dead:
	case <-ctx.Done():
		return
	}
	if b.up.over {
		return // the last result may still be on its way
	}
	select {
	case <-time.After(b.hub.grace):
		cancel()
	case <-ctx.Done():
	}
}

// whyDead is the error of a session that ended; dead must be closed.
func (b *branch) whyDead() error {
	select {
	case <-b.up.done:
		return fmt.Errorf("rendezvous: %w", ErrClosed)
	default:
	}
	if b.dead == b.up.dead {
		return b.up.end.err()
	}
	return b.why.err()
}

// relay encodes an event for the parent.
func (ev event) relay() []byte {
	if ev.err != nil {
		return relayFrame(ev.rank, textFrame(frameLost, whyLost(ev.err)))
	}
	return relayFrame(ev.rank, ev.frame)
}

func (b *branch) exchange(ctx context.Context, seq uint32, blob []byte, _ func([][]byte) []byte) ([]byte, error) {
	select {
	case <-b.dead:
		return nil, b.whyDead()
	default:
		if ctx.Err() != nil {
			return nil, b.giveUp(ctx, seq)
		}
	}
	if b.up.send(ctx, blobFrame(seq, blob)) != nil && ctx.Err() == nil {
		closeWrite(b.up.conn) // frames that arrived before the connection broke may say why
	}
	select {
	case f := <-b.frames:
		n, result, err := decodeResult(f.payload)
		if err == nil && (n != seq || f.typ != frameResult) {
			err = fmt.Errorf("%w: exchange %d of rank %d meets exchange %d", ErrProtocol, n, b.up.parent, seq)
		}
		if err != nil {
			v := b.up.lost(err, ": exchange %d: %v", seq, err)
			b.end(v, leftClosed)
			return nil, v.err()
		}
		return result, nil
	case <-b.dead:
		return nil, b.whyDead()
	case <-ctx.Done():
		select {
		case <-b.dead: // it says more than the end of ctx
			return nil, b.whyDead()
		default:
		}
	}
	return nil, b.giveUp(ctx, seq)
}

// giveUp leaves because ctx ended. The ranks below get rank 0's verdict if this rank's time for waiting ended.
func (b *branch) giveUp(ctx context.Context, seq uint32) error {
	why := reasonOf(ctx)
	v := &verdict{
		kind: ErrLost, ranks: []int{b.rank}, size: b.up.size,
		text: fmt.Sprintf("exchange %d: rank %d %v", seq, b.rank, why),
	}
	if why == leftDeadline && b.relays {
		if told := b.up.sentence(context.Background(), b.hub.grace); told != nil {
			v = told
		}
	}
	b.end(v, why)
	by := ""
	if b.from != b.up {
		by = fmt.Sprintf(", whose results come from rank %d at %v", b.from.parent, b.from.conn.RemoteAddr())
	}
	return fmt.Errorf("rendezvous: exchange %d: rank %d %v for rank %d at %v%s: %w",
		seq, b.rank, why, b.up.parent, b.up.conn.RemoteAddr(), by, context.Cause(ctx))
}

// end leaves. The children get a verdict.
func (b *branch) end(v *verdict, why reason) { b.leave(v.frame(), why) }

func (b *branch) close() { b.leave(leaveFrame(leftClosed), leftClosed) }

// leave ends all connections; last is the last frame for the children.
func (b *branch) leave(last []byte, why reason) {
	b.hub.farewell(last)
	b.up.leave(leaveFrame(why))
	if b.from != b.up {
		b.from.leave(nil)
	}
	b.tasks.Wait()
	b.spread.close()
}

func (b *branch) localAddr() netip.Addr { return addrOf(b.up.conn.LocalAddr()) }
