package ip

import (
	"github.com/allcast/allcast/internal/fabric"
	"github.com/allcast/allcast/internal/fabric/session"
	"github.com/allcast/allcast/internal/seal"
)

type itemKind uint8

const (
	itemNone   itemKind = iota // sent, or cancelled
	itemFrames                 // encoded frames in the arena
	itemRecord                 // protected frames in the arena
	itemPiece
	itemAnswer // the answer to a read
)

// peerItem is something to send.
type peerItem struct {
	kind      itemKind
	cancelled bool // guarded by peer.mu
	from, to  int  // in the arena
	piece     fabric.Piece
	data      []byte
	read      fabric.ReadRequest
	size      int64 // of its answer
}

// peerQueue is a queue of items to send, in order. A peer reuses two of them: callers fill one while
// write sends the other.
type peerQueue struct {
	items []peerItem
	arena []byte // small frames, encoded when they are queued
	other []byte // spare memory for protect
}

// The memory that an empty queue keeps.
const (
	peerKeepBytes = 1 << 20
	peerKeepItems = 1 << 12
)

// frame queues a header and its payload. Adjacent frames become one item, and thus one element of a
// writev.
func (q *peerQueue) frame(h *session.Frame, payload []byte) {
	from := len(q.arena)
	q.arena = append(h.AppendStream(q.arena), payload...)
	if n := len(q.items); n > 0 && q.items[n-1].kind == itemFrames {
		q.items[n-1].to = len(q.arena)
		return
	}
	q.items = append(q.items, peerItem{kind: itemFrames, from: from, to: len(q.arena)})
}

// protect turns the only item, encoded frames, into records that are sent next.
func (q *peerQueue) protect(d *seal.Direction) {
	it := &q.items[0]
	q.other = d.Append(q.other[:0], q.arena[it.from:it.to])
	q.arena, q.other = q.other, q.arena
	it.kind, it.from, it.to = itemRecord, 0, len(q.arena)
}

// cancel marks the pieces of an operation, and reports whether there are any.
func (q *peerQueue) cancel(op fabric.OpKey) bool {
	found := false
	for i := range q.items {
		if it := &q.items[i]; it.kind == itemPiece && it.piece.Op == op {
			it.cancelled, found = true, true
		}
	}
	return found
}

// take removes pieces, all or only cancelled ones, and appends them to done.
func (q *peerQueue) take(done []fabric.Piece, all bool) []fabric.Piece {
	for i := range q.items {
		if it := &q.items[i]; it.kind == itemPiece && (all || it.cancelled) {
			done = append(done, it.piece)
			it.kind, it.data = itemNone, nil
		}
	}
	return done
}

// reset empties the queue.
func (q *peerQueue) reset() {
	clear(q.items) // drops references to users' buffers
	q.items, q.arena = q.items[:0], q.arena[:0]
	if cap(q.arena) > peerKeepBytes {
		q.arena = nil
	}
	if cap(q.other) > peerKeepBytes {
		q.other = nil
	}
	if cap(q.items) > peerKeepItems {
		q.items = nil
	}
}
