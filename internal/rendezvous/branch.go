package rendezvous

import (
	"context"
	"fmt"
	"net/netip"
	"sync"
)

// branch is the part of a rank other than 0: a child of its parent, and a hub for its own children.
type branch struct {
	rank int
	up   *leaf
	hub  *hub

	// For a rank without children, these are the channels of up. Otherwise a result of an Exchange reaches the
	// children before it reaches this rank.
	frames chan frame
	dead   chan struct{} // closed when no more frames come

	relays sync.WaitGroup
}

// start begins to relay, if there are children.
func (b *branch) start() {
	b.frames, b.dead = b.up.frames, b.up.dead
	if len(b.hub.children()) == 0 && len(b.hub.extra) == 0 {
		return
	}
	b.frames, b.dead = make(chan frame), make(chan struct{})
	b.relays.Go(b.relayUp)
	b.relays.Go(b.relayDown)
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

// relayDown passes the results of exchanges on to the children, and finally the reason why the session ends.
func (b *branch) relayDown() {
	defer close(b.dead)
	for {
		select {
		case f := <-b.up.frames:
			// A child that misses the result has lost its connection, which its reader reports.
			_ = b.hub.deliver(context.Background(), f.bytes(), "")
			select {
			case b.frames <- f:
			case <-b.up.done:
			}
		case <-b.up.dead:
			if v := b.up.end; v != nil { // nil if this rank leaves by itself
				b.hub.farewell(v.frame())
			}
			return
		}
	}
}

// relay encodes an event for the parent.
func (ev event) relay() []byte {
	if ev.err != nil {
		return relayFrame(ev.rank, textFrame(frameLost, whyLost(ev.err)))
	}
	return relayFrame(ev.rank, ev.frame)
}

func (b *branch) exchange(ctx context.Context, seq uint32, blob []byte) ([][]byte, error) {
	select {
	case <-b.dead:
		return nil, b.up.whyDead()
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
		n, all, err := decodeAll(f.payload, b.up.size)
		if err == nil && (n != seq || f.typ != frameAll) {
			err = fmt.Errorf("%w: exchange %d of rank %d meets exchange %d", ErrProtocol, n, b.up.parent, seq)
		}
		if err != nil {
			v := b.up.lost(err, ": exchange %d: %v", seq, err)
			b.end(v, leftClosed)
			return nil, v.err()
		}
		return all, nil
	case <-b.dead:
		return nil, b.up.whyDead()
	case <-ctx.Done():
		select {
		case <-b.dead: // it says more than the end of ctx
			return nil, b.up.whyDead()
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
	if why == leftDeadline && b.dead != b.up.dead {
		if told := b.up.sentence(context.Background(), b.hub.grace); told != nil {
			v = told
		}
	}
	b.end(v, why)
	return fmt.Errorf("rendezvous: exchange %d: rank %d %v for rank %d at %v: %w",
		seq, b.rank, why, b.up.parent, b.up.conn.RemoteAddr(), context.Cause(ctx))
}

// end leaves. The children get a verdict.
func (b *branch) end(v *verdict, why reason) {
	b.hub.farewell(v.frame())
	b.up.leave(leaveFrame(why))
	b.relays.Wait()
}

func (b *branch) close() {
	b.hub.farewell(leaveFrame(leftClosed))
	b.up.leave(leaveFrame(leftClosed))
	b.relays.Wait()
}

func (b *branch) localAddr() netip.Addr { return addrOf(b.up.conn.LocalAddr()) }
