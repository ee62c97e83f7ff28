package rendezvous

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/allcast/allcast/internal/units"
)

// exchange is rank 0's. It collects the blobs, folds them and sends the result to all ranks.
func (h *hub) exchange(ctx context.Context, seq uint32, blob []byte, fold func([][]byte) []byte) ([]byte, error) {
	blobs := make([][]byte, h.size)
	given := make([]bool, h.size)
	blobs[0], given[0] = blob, true
	remind := newReminder()
	defer remind.stop()
	for have := 1; have < h.size; {
		ev, err := h.next(ctx, remind, given)
		switch {
		case errors.Is(err, ErrClosed):
			return nil, fmt.Errorf("rendezvous: %w", err)
		case err != nil:
			v := h.gaveUp(0, reasonOf(ctx), given, seq)
			v.cause = err
			return nil, h.fail(v)
		case !h.current(ev) || h.peer(ev.rank) == nil:
			continue // an event of a process that left before all ranks came
		case ev.frame.typ == frameArrival || ev.frame.typ == frameRefused:
			continue // too late for the job
		case ev.frame.typ == frameDirect:
			ev.child.fed = false
			continue
		}
		b, v := h.take(ev, seq, given)
		if v != nil {
			return nil, h.fail(v)
		}
		blobs[ev.rank], given[ev.rank] = b, true
		have++
	}
	result := fold(blobs)
	if v := h.deliver(ctx, resultFrame(seq, result), fmt.Sprintf("exchange %d: ", seq)); v != nil {
		if ctx.Err() != nil { // the children are not to blame
			v = h.gaveUp(0, reasonOf(ctx), given, seq)
		}
		v.cause = context.Cause(ctx)
		return nil, h.fail(v)
	}
	return result, nil
}

// next returns the next event, until ctx ends or the session closes. Events that have arrived come first, so
// that no rank that gave its blob in time counts as late. It warns of ranks that have not given theirs.
func (h *hub) next(ctx context.Context, remind *reminder, given []bool) (event, error) {
	var err error
	for err == nil {
		select {
		case ev := <-h.events:
			return ev, nil
		case <-h.done:
			return event{}, ErrClosed
		case <-remind.C:
			remind.next()
			h.log.Warn("joining: all ranks came, but some do not go on: missing: " + rankList(withoutBlob(given)))
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
	}
	select {
	case ev := <-h.events:
		return ev, nil
	default:
		return event{}, err
	}
}

// withoutBlob lists the ranks that have not given a blob.
func withoutBlob(given []bool) (ranks []int) {
	for rank, ok := range given {
		if !ok {
			ranks = append(ranks, rank)
		}
	}
	return ranks
}

// take returns the blob of an event, or a verdict if the event has none.
func (h *hub) take(ev event, seq uint32, given []bool) ([]byte, *verdict) {
	when, err := fmt.Sprintf("exchange %d: ", seq), ev.err
	var blob []byte
	switch {
	case err != nil:
	case ev.frame.typ == frameLost:
		return nil, lost(h.peers[ev.rank], when, units.Printable(string(ev.frame.payload)))
	case ev.frame.typ == frameLeave:
		var why reason
		if why, err = decodeLeave(ev.frame.payload); err == nil {
			return nil, h.gaveUp(ev.rank, why, given, seq)
		}
	default:
		var n uint32
		n, blob, err = decodeBlob(ev.frame.payload)
		if err == nil && (n != seq || given[ev.rank]) {
			err = fmt.Errorf("%w: exchange %d of this rank meets exchange %d", ErrProtocol, seq, n)
		}
	}
	if err != nil {
		return nil, lost(h.peers[ev.rank], when, whyLost(err))
	}
	return blob, nil
}

// gaveUp is the verdict when a rank leaves. It blames that rank, or the late ranks if their delay made it
// leave.
func (h *hub) gaveUp(rank int, why reason, given []bool, seq uint32) *verdict {
	v := &verdict{kind: ErrLost, ranks: []int{rank}, text: fmt.Sprintf("exchange %d: rank %d %v", seq, rank, why)}
	// A rank that gets results from a late rank may still wait for the last one, so it is not to blame.
	var late, below []int
	for r, ok := range given {
		switch p := h.peers[r]; {
		case ok:
		case seq > 1 && p != nil && p.fed && !given[h.results.parent(r)]:
			below = append(below, r)
		default:
			late = append(late, r)
		}
	}
	if why != leftDeadline || late == nil || !given[rank] && !slices.Contains(below, rank) {
		return v
	}
	v.kind, v.ranks = ErrTimeout, late
	v.text += fmt.Sprintf(": %d of %d ranks came; missing: %s",
		h.size-len(late)-len(below), h.size, rankList(late))
	if below != nil {
		v.text += "; the following get results through them: " + rankList(below)
	}
	return v
}

// deliver writes f to all children, except to those that get it from other ranks. The text of the verdict begins
// with when.
func (h *hub) deliver(ctx context.Context, f []byte, when string) *verdict {
	to := slices.DeleteFunc(h.children(), func(p *peer) bool { return p.fed })
	return h.write(ctx, to, when, func(*peer) []byte { return f })
}

// write writes a frame to each of some children concurrently, so that a slow child delays only itself and the ranks
// below it.
func (h *hub) write(ctx context.Context, to []*peer, when string, frame func(*peer) []byte) *verdict {
	var (
		wg    sync.WaitGroup
		mu    sync.Mutex
		first *verdict
	)
	for _, p := range to {
		wg.Go(func() {
			if err := writeUntil(ctx, p.conn, frame(p)); err != nil {
				p.broken.Store(true)
				mu.Lock()
				defer mu.Unlock()
				if first == nil {
					first = lost(p, when, whyLost(err))
				}
			}
		})
	}
	wg.Wait()
	return first
}

func (h *hub) fail(v *verdict) error {
	v.size = h.size
	h.farewell(v.frame())
	return v.err()
}

func (h *hub) close() { h.farewell(leaveFrame(leftClosed)) }
