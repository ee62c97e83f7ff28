package ip

import (
	"slices"

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

type peerItem struct {
	kind      itemKind
	cancelled bool // guarded by peer.mu
	from, to  int  // in the arena
	piece     fabric.Piece
	data      []byte
	read      fabric.ReadRequest
	size      int64 // of its answer
}

// peerOutbox is what this rank sends to a peer. peer.mu guards it, but only write changes cur, except for the
// mark of cancelled items.
type peerOutbox struct {
	next, cur peerQueue      // filled by callers; sent by write; their memory is reused
	flying    []fabric.Piece // pieces whose PutDone is due once write has sent its batch
	cut       bool           // write must stop using the memory of cancelled pieces
	busy      bool           // write is sending something
	corked    bool           // the queue waits for the next message
}

// idle reports whether new frames need not wait for others.
func (o *peerOutbox) idle() bool { return !o.busy && !o.cut && (len(o.next.items) == 0 || o.corked) }

func (o *peerOutbox) add(it peerItem) {
	o.corked = false
	o.next.items = append(o.next.items, it)
}

// cancel marks the pieces of an operation, and reports whether there are any.
func (o *peerOutbox) cancel(op fabric.OpKey) bool {
	found := slices.ContainsFunc(o.flying, func(p fabric.Piece) bool { return p.Op == op })
	for _, q := range []*peerQueue{&o.next, &o.cur} {
		for i := range q.items {
			if it := &q.items[i]; it.kind == itemPiece && it.piece.Op == op {
				it.cancelled, found = true, true
			}
		}
	}
	o.cut = o.cut || found
	return found
}

// end moves pieces, all or only cancelled ones, to flying.
func (o *peerOutbox) end(all bool) {
	for _, q := range []*peerQueue{&o.next, &o.cur} {
		for i := range q.items {
			if it := &q.items[i]; it.kind == itemPiece && (all || it.cancelled) {
				o.flying = append(o.flying, it.piece)
				it.kind, it.data = itemNone, nil
			}
		}
	}
}

// peerQueue is a queue of items to send, in order.
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
