package mcast

import (
	"fmt"
	"iter"
	"slices"

	"github.com/allcast/allcast/internal/step"
	"github.com/allcast/allcast/internal/wire"
)

const (
	// EagerBytes limits the size of an eager collective, over all ranks that send.
	EagerBytes = 64 << 10
	// eagerShare is the part of a receive queue that is reserved for eager collectives: one in eagerShare.
	eagerShare = 4
	// eagerPSNs is the number of bits that number the chunks of an eager collective. The other bits of its
	// PSNs are the tag.
	eagerPSNs = 10
	// minEagerTag is the smallest number of bits of a tag.
	minEagerTag = 8
	// minEagerSlots is the smallest number of slots with which a receiver recognises early datagrams.
	minEagerSlots = 4 * WindowCalls
	// maxEagerChunks limits the chunks of an eager collective. One message requests any of them.
	maxEagerChunks = wire.MaxRanges
)

// EagerChunks returns the number of chunks up to which a collective may be eager, where each rank's receive
// queue has room for at least room datagrams.
func EagerChunks(room uint64) uint32 {
	return uint32(min(room/eagerShare/WindowCalls, maxEagerChunks))
}

// EagerRoom returns the places of a receive queue that are reserved for eager collectives of at most chunks
// chunks.
func EagerRoom(chunks uint32) uint64 { return uint64(chunks) * WindowCalls }

// mayBeEager reports whether a collective is small enough to be eager. It depends on nothing but the Shape
// and the Layout, so all ranks agree.
func (s *Shape) mayBeEager(l wire.Layout) bool {
	if len(s.Counts) < 2 || l.Capacity() < 1<<(eagerPSNs+minEagerTag) || l.Slots() < minEagerSlots {
		return false
	}
	var bytes, chunks int64
	for _, n := range s.Counts {
		if bytes += n; n < 0 || bytes > EagerBytes {
			return false
		}
		chunks += (n + int64(s.Chunk) - 1) / int64(s.Chunk)
	}
	return bytes > 0 && chunks <= int64(min(s.Eager, maxEagerChunks))
}

// eagerTag returns the bits of a digest that fit the PSNs of an eager collective.
func eagerTag(digest uint64, l wire.Layout) uint32 {
	return uint32(digest) << eagerPSNs & uint32(l.Capacity()-1)
}

// Eager reports whether the collective is small enough to be eager.
func (g *Geometry) Eager() bool { return g.eager }

// Tag returns the upper bits of the PSNs of the collective's datagrams if it is eager.
func (g *Geometry) Tag() uint32 { return g.tag }

// An Eager is one small collective on one rank, without barrier and without handshake. The package comment
// says why that is safe.
//
//   - A rank that sends multicasts its block as soon as the Window allows, from a copy that the driver keeps
//     until the Eager closes. It does not wait for the block to arrive.
//   - A rank that has every chunk has finished.
//   - A rank that misses chunks of a block at the cutoff reads them from the sender's copy if another chunk of the
//     block has arrived: the sender has made the call. Otherwise it asks the sender, which answers once it has sent
//     the block.
//   - The Eager closes when all ranks have finished.
type Eager struct {
	cfg    EagerConfig
	g      *Geometry
	place  *Placement
	number uint64 // among the eager calls of the communicator
	phase  step.Phase
	times  step.Times
	stats  step.Stats

	missing uint32
	sent    bool         // whether this rank's block was multicast, or there is none
	sentAt  step.Time    // time of that
	asked   Bitmap       // missing chunks requested from their senders
	reading Bitmap       // missing chunks for which a read has started
	readAt  step.Time    // time of the first read, until it ends
	offers  []eagerOffer // requested chunks that were sent after the request
	askedAt step.Time    // time of the first request, until it is answered
	wanted  []eagerWant  // requests for chunks that this rank has not sent yet
	reach   []uint32     // by index of the sender: 1 + the last PSN of its block that a datagram has brought, or 0
	overdue overdue

	progressAt step.Time // time of the last sign of progress
	firstAt    step.Time // time at which the first chunk of the last block arrived
	taken      uint64    // pool's taken count at the time of the last progress
	late       bool      // a requested chunk arrived before the answer

	someReach [1]uint32 // backing array for one sender, which is the common case
}

// overdue counts the missing chunks for which this rank has neither asked nor started a read.
type overdue struct {
	begun  uint32 // in blocks of which chunks have arrived
	tail   uint32 // of these, chunks after the last one that has arrived
	silent uint32 // in blocks of which none has arrived
}

// EagerConfig holds the parameters of an Eager.
type EagerConfig struct {
	Geometry *Geometry
	Rank     int
	Comm     uint32
	Seq      uint64
	Number   uint64 // from Window.Begin
	Window   *Window
	Est      *Estimator
	Pool     *Pool // room of the receive queue
	Overhead int
}

// eagerOffer is the answer of a sender that was late. Its chunks may still be in transit.
type eagerOffer struct {
	owner  int
	ranges []wire.Range
	since  step.Time
}

// eagerWant is a request that this rank answers when it sends.
type eagerWant struct {
	from   int
	ranges []wire.Range
}

// NewEager returns an Eager that waits for EvStart.
func NewEager(cfg EagerConfig) *Eager {
	o := &Eager{cfg: cfg, g: cfg.Geometry, number: cfg.Number}
	o.place = newPlacement(o.g, 0, cfg.Rank, cfg.Comm, cfg.Seq)
	o.place.tag = o.g.tag
	o.missing = o.place.Len() - o.place.own.N
	o.asked, o.reading = Bitmap{n: o.place.Len()}, Bitmap{n: o.place.Len()}
	o.sent = o.place.own.N == 0
	if o.reach = o.someReach[:]; len(o.g.senders) != 1 {
		o.reach = make([]uint32, len(o.g.senders))
	}
	o.findOverdue()
	return o
}

// Placement returns the placement of the only subgroup.
func (o *Eager) Placement() *Placement { return o.place }

// Step handles an event and appends the resulting actions to out. EvTimer also means that the Window has
// moved.
func (o *Eager) Step(now step.Time, ev step.Event, out []step.Action) []step.Action {
	switch {
	case o.phase >= step.Closed:
		return out
	case ev.Kind == step.EvStart:
		o.phase, o.times.Start = step.Barrier, now
		o.recordProgress(now)
		o.times.Cutoff = o.patience()
	case o.phase < step.Barrier:
		return out
	case ev.Kind == step.EvMsg:
		out = o.handleMessage(now, ev.From, ev.Msg, out)
	case ev.Kind == step.EvRead:
		for _, q := range ev.Ranges {
			o.asked.ClearRange(q.PSN, q.N)
			o.missing -= q.N
			o.stats.Repaired += uint64(q.N)
			o.recordProgress(now)
		}
		if o.readAt > 0 {
			o.cfg.Est.RoundTrip(now - o.readAt)
			o.readAt = 0
		}
	case ev.Kind == step.EvTimer:
		out = o.handleTimer(now, out)
	}
	return o.settle(now, out)
}

// Placed handles chunks that the receive worker has placed from datagrams. It reports each chunk once.
func (o *Eager) Placed(now step.Time, q wire.Range, out []step.Action) []step.Action {
	if o.phase >= step.Lingering {
		return out
	}
	o.cfg.Pool.Took(now)
	if late := o.asked.ClearRange(q.PSN, q.N); late > 0 {
		o.stats.Late += uint64(late)
		o.late = true // the sender's answer says whether the sender was late, or the network
	}
	o.missing -= q.N
	o.recordProgress(now)
	o.recordArrived(now, q)
	if o.phase < step.Barrier {
		return out // EvStart goes on
	}
	return o.settle(now, out)
}

func (o *Eager) recordProgress(now step.Time) {
	o.progressAt, o.taken = max(o.progressAt, now), o.cfg.Pool.taken.Count()
}

// recordArrived records which blocks have begun to arrive.
func (o *Eager) recordArrived(now step.Time, q wire.Range) {
	for at, end := q.PSN, q.PSN+q.N; at < end; {
		j := o.g.find(0, at)
		stop := min(end, o.g.base[0][j+1])
		if o.reach[j] == 0 {
			o.firstAt = now
		}
		o.reach[j] = max(o.reach[j], stop)
		at = stop
	}
}

// findOverdue counts the chunks for which this rank has to do something at a cutoff.
func (o *Eager) findOverdue() {
	o.overdue = overdue{}
	for j, reach := range o.reach {
		for q := range o.unrequested(j) {
			switch {
			case reach == 0:
				o.overdue.silent += q.N
			case q.PSN >= reach:
				o.overdue.tail += q.N
				fallthrough
			default:
				o.overdue.begun += q.N
			}
		}
	}
}

// unrequested returns the missing chunks of the j-th block that this rank may still read, if the block has begun to
// arrive, or ask for.
func (o *Eager) unrequested(j int) iter.Seq[wire.Range] {
	next, end := o.asked.NextClear, o.asked.NextSet
	if o.reach[j] > 0 {
		next, end = o.reading.NextClear, o.reading.NextSet
	}
	first := o.g.base[0][j]
	block := wire.Range{PSN: first, N: o.g.base[0][j+1] - first}
	return func(yield func(wire.Range) bool) {
		for free := range runs(block, o.place.NextFree, o.place.NextTaken) {
			for q := range runs(free, next, end) {
				if !yield(q) {
					return
				}
			}
		}
	}
}

// Queued records that datagrams wait to be received: see Collective.Queued.
func (o *Eager) Queued(now step.Time) {
	if p := o.cfg.Pool; p.taken.Count()-o.taken < p.size {
		o.progressAt = max(o.progressAt, now)
	}
}

func (o *Eager) wireSize(chunks uint32) int64 {
	return int64(chunks) * (o.g.chunk + int64(o.cfg.Overhead))
}

func (o *Eager) slack() step.Time { return o.cfg.Est.Slack(o.wireSize(o.missing)) }

// patience is the time for which this rank waits for blocks of which it has seen nothing. Their senders may be late.
func (o *Eager) patience() step.Time { return o.cfg.Est.Patience(o.wireSize(o.missing)) }

// settle advances the Eager as far as its state allows.
func (o *Eager) settle(now step.Time, out []step.Action) []step.Action {
	if !o.sent && o.phase == step.Barrier && o.cfg.Window.MaySend(o.number) {
		o.sent, o.sentAt = true, now
		own := o.place.own
		out = append(out, step.Action{Kind: step.ActMulticast, PSN: own.PSN, N: own.N})
		for _, w := range o.wanted {
			out = o.answer(out, w.from, w.ranges, true)
		}
		o.wanted = nil
	}
	if o.sent && o.phase == step.Barrier {
		o.phase, o.times.Barrier = step.Multicast, now
		if o.asked.Count() > 0 || o.reading.Count() > 0 {
			o.phase, o.times.Fetch = step.Fetch, now
		}
	}
	if o.sent && o.missing == 0 && o.phase < step.Handshake {
		o.phase, o.times.Have, o.times.Done = step.Lingering, now, now
		if o.stats.Late == 0 && o.place.own.N < o.place.Len() {
			o.cfg.Est.InTime()
		}
		if o.firstAt > 0 {
			o.cfg.Est.Waited(o.firstAt - o.times.Start)
		}
		out = append(out, step.Action{Kind: step.ActComplete})
		out = o.cfg.Window.Finish(o.number, out)
	}
	if o.phase == step.Lingering && o.cfg.Window.Passed(o.number) {
		o.phase = step.Closed
		out = append(out, step.Action{Kind: step.ActClosed})
	}
	if o.phase < step.Lingering {
		o.findOverdue()
	}
	return out
}

func (o *Eager) handleMessage(now step.Time, from int, m *wire.Msg, out []step.Action) []step.Action {
	switch m.Kind {
	case wire.MsgEagerFetch:
		if m.Digest != o.g.digest {
			return append(out, step.Action{Kind: step.ActMismatch, To: from, Msg: *m})
		}
		if !o.ownedBy(o.cfg.Rank, m.Ranges) {
			return out
		}
		if o.sent {
			return o.answer(out, from, m.Ranges, now < o.sentAt+o.cfg.Est.Alpha())
		}
		for _, w := range o.wanted {
			if w.from == from {
				return out // a correct rank asks once
			}
		}
		o.wanted = append(o.wanted, eagerWant{from, m.Ranges})
	case wire.MsgEagerSent:
		if !o.ownedBy(from, m.Ranges) {
			return out
		}
		if o.late && !m.Flag {
			o.late = false
			o.cfg.Est.Late(now)
		}
		if o.phase >= step.Lingering {
			return out
		}
		if !m.Flag {
			if o.askedAt > 0 {
				o.cfg.Est.RoundTrip(now - o.askedAt)
				o.askedAt = 0
			}
			return o.readAsked(now, from, m.Ranges, out)
		}
		for i := range o.offers {
			if o.offers[i].owner == from {
				return out // a correct rank answers once
			}
		}
		o.offers = append(o.offers, eagerOffer{from, m.Ranges, now})
		o.askedAt = 0
	}
	return out
}

// ownedBy reports whether all ranges lie in a rank's block, as those of a correct peer do.
func (o *Eager) ownedBy(rank int, ranges []wire.Range) bool {
	psn, n := o.g.Block(0, rank)
	for _, q := range ranges {
		if q.PSN < psn || q.PSN-psn >= n || q.N > n-(q.PSN-psn) {
			return false
		}
	}
	return true
}

// answer tells a rank that this rank has sent the chunks that the rank misses.
func (o *Eager) answer(out []step.Action, to int, ranges []wire.Range, late bool) []step.Action {
	return o.send(out, to, wire.Msg{Kind: wire.MsgEagerSent, Flag: late, Ranges: ranges})
}

// readAsked reads chunks of the owner's block that were requested.
func (o *Eager) readAsked(now step.Time, owner int, ranges []wire.Range, out []step.Action) []step.Action {
	var missing []wire.Range
	for _, q := range ranges {
		for asked := range runs(q, o.asked.NextSet, o.asked.NextClear) {
			missing = slices.AppendSeq(missing, runs(asked, o.reading.NextClear, o.reading.NextSet))
		}
	}
	return o.read(now, owner, missing, out)
}

// read reads missing chunks of the owner's block, for which no read has started.
func (o *Eager) read(now step.Time, owner int, missing []wire.Range, out []step.Action) []step.Action {
	if missing == nil {
		return out
	}
	for _, q := range missing {
		o.reading.SetRange(q.PSN, q.N)
	}
	if o.readAt == 0 {
		o.readAt = now
	}
	return append(out, step.Action{Kind: step.ActRead, To: owner, Ranges: missing})
}

func (o *Eager) send(out []step.Action, to int, m wire.Msg) []step.Action {
	m.Comm, m.Seq = o.cfg.Comm, o.cfg.Seq
	return append(out, step.Action{Kind: step.ActSend, To: to, Msg: m})
}

// since returns the time since which no missing chunk has arrived although it could.
func (o *Eager) since() step.Time {
	if p := o.cfg.Pool; p.taken.Count()-o.taken < p.size {
		return max(o.progressAt, p.takenAt) // the network is busy with other calls
	}
	return o.progressAt
}

// lostAt returns the time at which the missing chunks of blocks that have begun to arrive count as lost. Their senders
// send a block without a pause, so this rank waits only for what may be in transit.
func (o *Eager) lostAt() step.Time {
	if o.overdue.begun == 0 {
		return step.Never
	}
	return o.since() + o.cfg.Est.Transit(o.wireSize(o.overdue.tail))
}

// silentAt returns the time at which this rank asks for the blocks of which nothing has arrived.
func (o *Eager) silentAt() step.Time {
	if o.overdue.silent == 0 {
		return step.Never
	}
	return o.since() + o.patience()
}

// askAt returns the time at which a rank that waits for the Window asks for reports.
func (o *Eager) askAt() step.Time {
	if o.sent || o.cfg.Window.wanted > o.number-WindowCalls {
		return step.Never
	}
	return o.times.Start + o.cfg.Est.Patience(0)
}

// Timer returns the time at which the Eager needs EvTimer, or Never.
func (o *Eager) Timer() step.Time {
	if o.phase < step.Barrier || o.phase >= step.Lingering {
		return step.Never
	}
	at := min(o.lostAt(), o.silentAt(), o.askAt())
	for i := range o.offers {
		at = min(at, o.offerEnds(&o.offers[i]))
	}
	return at
}

// offerEnds returns the time at which chunks that were sent after the request count as lost.
func (o *Eager) offerEnds(f *eagerOffer) step.Time { return max(f.since, o.progressAt) + o.slack() }

func (o *Eager) handleTimer(now step.Time, out []step.Action) []step.Action {
	if o.phase >= step.Lingering {
		return out
	}
	kept := o.offers[:0]
	for _, f := range o.offers {
		if now >= o.offerEnds(&f) {
			out = o.readAsked(now, f.owner, f.ranges, out)
		} else {
			kept = append(kept, f)
		}
	}
	o.offers = kept
	if now >= o.askAt() {
		out = o.cfg.Window.Await(o.number-WindowCalls+1, out)
	}
	if lost, silent := now >= o.lostAt(), now >= o.silentAt(); lost || silent {
		out = o.handleCutoff(now, lost, silent, out)
	}
	return out
}

// handleCutoff reads the missing chunks of blocks that have begun to arrive, if these are lost. It asks the senders of
// the other blocks if those have been silent for too long. It does so once for each chunk.
func (o *Eager) handleCutoff(now step.Time, lost, silent bool, out []step.Action) []step.Action {
	for j, reach := range o.reach {
		if begun := reach > 0; begun && !lost || !begun && !silent {
			continue
		}
		ranges := slices.Collect(o.unrequested(j))
		if ranges == nil {
			continue
		}
		owner := o.g.Owner(0, o.g.base[0][j])
		if reach > 0 {
			out = o.read(now, owner, ranges, out)
			continue
		}
		for _, q := range ranges {
			o.asked.SetRange(q.PSN, q.N)
		}
		out = o.send(out, owner, wire.Msg{
			Kind: wire.MsgEagerFetch, Digest: o.g.digest, Call: o.g.call, Ranges: ranges,
		})
		if o.askedAt == 0 {
			o.askedAt = now
		}
	}
	if o.phase == step.Multicast {
		o.phase, o.times.Fetch = step.Fetch, now
	}
	return out
}

// Fail ends the Eager at once.
func (o *Eager) Fail() {
	if o.phase < step.Closed {
		o.phase = step.Failed
	}
}

// Phase returns the current phase. An Eager is in the phase Barrier while its Window is closed, and has no
// phase Handshake.
func (o *Eager) Phase() step.Phase { return o.phase }

// Times returns the times at which the Eager reached its phases.
func (o *Eager) Times() step.Times { return o.times }

// Stats returns the counters of the Eager.
func (o *Eager) Stats() step.Stats { return o.stats }

// WaitingOn returns the rank that must act next, as far as this rank can tell.
func (o *Eager) WaitingOn() int {
	switch {
	case o.phase < step.Barrier || o.phase >= step.Lingering:
	case !o.sent:
		if r := o.cfg.Window.WaitingOn(o.number - WindowCalls + 1); r >= 0 {
			return r
		}
	case o.missing > 0:
		if psn := o.place.NextMissing(0, o.place.Len()); psn < o.place.Len() {
			return o.g.Owner(0, psn)
		}
	}
	return o.cfg.Rank
}

// Awaits reports whether the Eager lacks chunks of a rank's block.
func (o *Eager) Awaits(rank int) bool {
	if o.phase < step.Barrier || o.phase >= step.Lingering {
		return false
	}
	psn, n := o.g.Block(0, rank)
	return o.place.NextMissing(psn, psn+n) < psn+n
}

// Missing describes the missing chunks by owner, for error messages.
func (o *Eager) Missing(name step.Namer) string {
	if !o.sent && o.missing == 0 {
		return fmt.Sprintf("%s to finish earlier calls", name.Name(o.WaitingOn()))
	}
	return missingChunks(o.g, []*Placement{o.place}, name)
}
