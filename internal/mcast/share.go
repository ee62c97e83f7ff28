package mcast

import "github.com/allcast/allcast/internal/step"

// A multicast that shares the receivers' links with point-to-point operations must not fill the queues
// before these links: a ring waits in such a queue once per step, and sends nothing meanwhile. The
// senders of a Collective are receivers as well, so each of them sees what the others see. A sender
// therefore clocks itself by arrivals. It sends the chunk at place p of the merged order
// (chains.position) once all but a window of the places before p are known to have been sent.
//
// The window is what the network carries while a message travels and its answer returns. That keeps a
// link busy if nothing else uses it. Point-to-point operations that do use it keep more in the queues,
// and would get more than their part. The window therefore grows with the lag: by how much less this
// Collective has received than each of them. All then progress alike, whatever the rate of the link.
//
// The window never stops a sender for good. If there is no progress for the time of a cutoff, because
// chunks were lost, the sender sends one chunk per such time.

// Others describes the operations of a process that are not multicast and share its links.
type Others struct {
	ops       int       // operations in flight
	receiving int       // those among them that wait for data of other ranks
	bytes     float64   // data that each of these has received, on average
	piece     float64   // part of the next piece that counts for each of them
	since     step.Time // time when the last piece arrived, or when received was first called; 0 before
	rate      float64   // bytes per nanosecond at which each of them received the last piece
}

// InFlight returns the number of operations in flight.
func (t *Others) InFlight() int { return t.ops }

// Start adds an operation that waits for some bytes of other ranks. The first of them are a piece.
func (t *Others) Start(bytes, piece int64) {
	t.ops++
	if bytes == 0 {
		return
	}
	if t.receiving++; t.receiving == 1 {
		t.since, t.piece = 0, float64(piece)
	}
}

// Receive records that an operation has received a piece. It waits for left more bytes, and the first
// of them are the next piece.
func (t *Others) Receive(now step.Time, piece, left, next int64) {
	each := float64(piece) / float64(t.receiving)
	if t.since > 0 {
		t.rate = each / float64(max(1, now-t.since))
	}
	t.bytes += each
	t.since = now
	if left == 0 {
		t.receiving--
	}
	t.piece = float64(next) / float64(max(1, t.receiving))
}

// End removes an operation that waited for left bytes.
func (t *Others) End(left int64) {
	t.ops--
	if left > 0 {
		t.receiving--
	}
}

// received returns how much each operation has received. The next piece arrives as the last one did.
func (t *Others) received(now step.Time) float64 {
	if t.since == 0 {
		t.since = now
	}
	return t.bytes + min(t.piece, t.rate*float64(now-t.since))
}

// share is the state of a sender beside point-to-point operations.
type share struct {
	on       bool      // whether such operations are in flight
	held     bool      // whether the window keeps the sender from sending
	place    uint64    // place that a held sender waits for
	window   uint64    // last window
	received uint64    // chunks of other ranks known to have been sent when on was set
	bytes    float64   // what each of the other operations had received then
	seen     uint64    // progress when the sender was last held
	seenAt   step.Time // time when it saw that progress, or sent without any
	idle     int       // chunks sent since then without progress
}

// minWindow is the smallest window in chunks. Switches store and forward, so chunks on several hops
// keep a link busy if the chunks are large.
const minWindow = 4

// The window grows by a part of the lag and by at most a few pieces. Short queues matter more than equal
// progress at every moment: a switch keeps a chunk until the last of its copies has left, and has no
// room for other packets meanwhile.
const (
	lagPart  = 2
	maxExtra = 2
)

// progress returns the number of chunks known to have been sent, by all ranks.
func (o *Collective) progress() uint64 { return o.count.sent + uint64(o.snd.done) }

// shares reports whether point-to-point operations receive at the same time.
func (o *Collective) shares() bool { return o.cfg.Others != nil && o.cfg.Others.receiving > 0 }

// updateWindow computes how many places may be sent beyond those known to have been sent.
func (o *Collective) updateWindow(now step.Time) {
	h, t := &o.snd.share, o.cfg.Others
	lag := t.received(now) - h.bytes - float64(o.count.sent-h.received)*float64(o.g.chunk)
	if ahead := -lag - t.piece; ahead > 0 {
		h.bytes -= ahead // operations that cannot use their part do not get it later
	}
	extra := min(max(0, lag)/lagPart, maxExtra*t.piece)
	h.window = minWindow + uint64((o.cfg.Est.roundTripBytes()+extra)/float64(o.wireSize(1)))
}

// shareOpen reports whether a held sender may go on.
func (o *Collective) shareOpen() bool {
	return !o.shares() || o.snd.share.place < o.progress()+o.snd.share.window
}

// shareAt returns the time at which a held sender goes on.
func (o *Collective) shareAt() step.Time {
	if o.shareOpen() {
		return 0
	}
	h := &o.snd.share
	return h.seenAt + o.cfg.Est.Slack(o.wireSize(h.window))<<min(h.idle, 20)
}

// pumpHeld lets a held sender go on if chunks that have arrived allow it.
func (o *Collective) pumpHeld(now step.Time, out []step.Action) []step.Action {
	if !o.snd.share.held {
		return out
	}
	if o.shares() {
		o.updateWindow(now)
	}
	if !o.shareOpen() {
		return out
	}
	return o.pump(now, out)
}

// clampToShare reduces a batch of n chunks to what may be sent beside point-to-point operations.
func (o *Collective) clampToShare(now step.Time, n uint32) uint32 {
	h, progress := &o.snd.share, o.progress()
	h.held = false
	if !o.shares() {
		h.on = false
		return n
	}
	if !h.on {
		*h = share{on: true, received: o.count.sent, bytes: o.cfg.Others.received(now), seen: progress, seenAt: now}
	}
	if progress > h.seen {
		h.seen, h.seenAt, h.idle = progress, now, 0
	}
	o.updateWindow(now)
	// Many small batches cost more than few large ones.
	least := min(n, uint32(max(1, h.window/uint64(2*o.g.Chains()))))
	i := o.g.index[o.rank]
	k, j := int(o.g.chains.of[i]), o.g.chains.before[i]+uint64(o.snd.handed)
	limit := progress + h.window
	h.place = o.g.chains.position(k, j+uint64(n)-1)
	for n > least && h.place >= limit {
		n = max(least, n/2)
		h.place = o.g.chains.position(k, j+uint64(n)-1)
	}
	if h.place < limit {
		return n
	}
	if now >= o.shareAt() {
		h.seenAt = now
		h.idle++
		return 1
	}
	h.held = true
	return 0
}
