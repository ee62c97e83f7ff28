package mcast

import (
	"slices"

	"github.com/allcast/allcast/internal/place"
	"github.com/allcast/allcast/internal/wire"
)

// An Intake is the receive worker of one stream, without its I/O. For each datagram of any
// operation of the process, it decides where the payload belongs. It reports which chunks are in
// place. Its driver moves the bytes. One goroutine at a time uses it.
//
// A driver that lets the network write straight to the receive buffer works in batches. It calls
// Expect, lets datagrams arrive in the returned slots, and checks them with Fits. Then it calls
// Arrived with the number of datagrams that belong where they are. It passes all other datagrams one
// by one: it calls Judge, moves the payload and calls Place, or calls Ignore.
type Intake struct {
	layout wire.Layout
	limit  uint32         // number of chunks at which a report is due
	fresh  func() *Report // constructor of empty reports
	taken  *place.Count
	open   map[uint64]*Placement // placements by token
	opened []*Placement          // placements in the order of Open
	early  early

	last    *Placement // placement of the last chunk placed
	next    uint32     // PSN after that chunk
	guess   *Placement // placement of the last Expect
	guessed uint32     // first PSN of the last Expect
	report  *Report
}

// A Report lists what an Intake has done since the previous report.
type Report struct {
	Runs    []PlacedRun
	Chunks  uint32 // total of all Runs
	Ignored Ignored
	Comm    uint32 // communicator of the late datagrams
}

// A PlacedRun is a run of consecutive chunks in place. Each chunk is reported once.
type PlacedRun struct {
	*Placement
	wire.Range
}

// Ignored counts datagrams that were taken from the receive queue but placed no chunk.
type Ignored struct {
	Duplicates, Late, Foreign, Stale uint64 // by Verdict
}

// MaxRuns limits the runs of a report.
const MaxRuns = 64

// A Slot is the position of a chunk in the receive buffer.
type Slot struct {
	Off int64
	Len int
}

// NewIntake returns the Intake of a stream. A report is due after limit chunks, so that credit flows
// while data keeps arriving. fresh returns empty reports. All Intakes of a process have a count in taken.
func NewIntake(l wire.Layout, limit uint32, taken *place.Taken, fresh func() *Report) *Intake {
	return &Intake{layout: l, limit: max(1, limit), taken: taken.New(), fresh: fresh, open: map[uint64]*Placement{}}
}

// Open accepts datagrams that carry a token.
func (in *Intake) Open(token uint64, p *Placement) {
	p.token, p.slot = token, in.layout.Slot(p.Seq)
	in.open[token] = p
	in.opened = append(in.opened, p)
}

// Close stops accepting datagrams for p. The Intake places nothing for p after that.
func (in *Intake) Close(p *Placement) {
	if in.open[p.token] == p {
		delete(in.open, p.token)
	}
	if i := slices.Index(in.opened, p); i >= 0 {
		in.opened = slices.Delete(in.opened, i, i+1)
	}
	if in.last == p {
		in.last = nil
	}
	if in.guess == p {
		in.guess = nil
	}
}

// Knows reports whether a token is open.
func (in *Intake) Knows(token uint64) bool {
	return in.last != nil && in.last.token == token || in.open[token] != nil
}

// Each calls f for every open placement, in any order.
func (in *Intake) Each(f func(*Placement)) {
	for _, p := range in.open {
		f(p)
	}
}

// Last returns the placement of the last datagram, or nil.
func (in *Intake) Last() *Placement { return in.last }

// Expect fills slots with the most likely positions of the next datagrams, in order. It returns their
// placement and their number.
func (in *Intake) Expect(slots []Slot) (p *Placement, n int) {
	p, next := in.likely()
	in.guess, in.guessed = p, next
	if p == nil || p.IsShared() {
		return nil, 0
	}
	for n < len(slots) {
		psn := next + uint32(n)
		if psn >= p.Len() || !p.Free(psn) {
			break
		}
		slots[n].Off, slots[n].Len = p.Locate(psn)
		n++
		if slots[n-1].Len != slots[0].Len {
			break // a short chunk ends a block and its super-packet
		}
	}
	return p, n
}

// likely returns the chunk that most likely arrives next: the one after the last chunk placed, without
// those in place, such as this rank's own. After the last chunk of an operation, it is the first one of
// the oldest operation that misses any.
func (in *Intake) likely() (p *Placement, psn uint32) {
	if p = in.last; p != nil {
		if psn = p.NextFree(in.next, p.Len()); psn < p.Len() {
			return p, psn
		}
	}
	for _, p := range in.opened {
		if psn = p.NextFree(0, p.Len()); psn < p.Len() {
			return p, psn
		}
	}
	return nil, 0
}

// Guess returns the placement of the last Expect, or nil.
func (in *Intake) Guess() *Placement { return in.guess }

// Fits reports whether a datagram that filled the i-th slot of the last Expect belongs there.
func (in *Intake) Fits(i int, token uint64, imm uint32) bool {
	p := in.guess
	psn := in.guessed + uint32(i)
	return p != nil && token == p.token && imm == in.layout.Imm(p.Seq, p.tag|psn) && p.Free(psn)
}

// Arrived records that the first n slots of the last Expect hold the chunks that belong there.
func (in *Intake) Arrived(n int) {
	if n > 0 {
		in.taken.Add(uint64(n))
		in.Place(in.guess, wire.Range{PSN: in.guessed, N: uint32(n)})
	}
}

// Judge decides about one datagram. If the verdict is Placed, the payload belongs at offset off of p's
// receive buffer.
func (in *Intake) Judge(token uint64, comm, imm uint32, length int) (
	p *Placement, psn uint32, off int64, v Verdict,
) {
	in.taken.Add(1)
	slot, psn := in.layout.Split(imm)
	p = in.last
	if p == nil || p.token != token {
		p = in.open[token]
	}
	switch {
	case p == nil:
		return nil, psn, 0, Stale
	case slot != p.slot || comm != p.Comm:
		return p, psn, 0, Foreign
	}
	psn ^= p.tag // a different tag leaves a PSN beyond the last
	off, v = p.judge(psn, length)
	return p, psn, off, v
}

// Place records that chunks are in place. They were free, or the driver has claimed them.
func (in *Intake) Place(p *Placement, q wire.Range) {
	p.Finish(q.PSN, q.N)
	in.last, in.next = p, q.PSN+q.N
	in.appendRun(p, q)
}

// appendRun adds chunks in place to the report.
func (in *Intake) appendRun(p *Placement, q wire.Range) {
	r := in.current()
	r.Chunks += q.N
	if k := len(r.Runs) - 1; k >= 0 && r.Runs[k].Placement == p && r.Runs[k].PSN+r.Runs[k].N == q.PSN {
		r.Runs[k].N += q.N
	} else {
		r.Runs = append(r.Runs, PlacedRun{p, q})
	}
}

// Due reports whether the report is long enough to be handed over.
func (in *Intake) Due() bool {
	return in.report != nil && (len(in.report.Runs) >= MaxRuns || in.report.Chunks >= in.limit)
}

// Flush returns the pending report and clears it. It returns nil if there is none.
func (in *Intake) Flush() *Report {
	r := in.report
	in.report = nil
	return r
}

// Ignore counts datagrams that placed no chunk. p is nil if they are stale.
func (in *Intake) Ignore(p *Placement, v Verdict, n uint64) {
	if n == 0 {
		return
	}
	r := in.current()
	switch v {
	case Placed:
	case Duplicate:
		r.Ignored.Duplicates += n
	case Late:
		r.Ignored.Late += n
		r.Comm = p.Comm
	case Foreign:
		r.Ignored.Foreign += n
	case Stale:
		r.Ignored.Stale += n
	}
}

// Claim claims chunks for a read; datagrams no longer place them. It appends to won the chunks that
// the read must place; the others are already in place. It reports busy if the kernel program is
// writing some of them. The caller then calls Claim again.
func (in *Intake) Claim(p *Placement, ranges []wire.Range, won []wire.Range) (runs []wire.Range, busy bool) {
	for _, q := range ranges {
		first := len(won)
		b := p.Claim(q.PSN, q.N, func(psn, n uint32) {
			if k := len(won) - 1; k >= first && won[k].PSN+won[k].N == psn {
				won[k].N += n
			} else {
				won = append(won, wire.Range{PSN: psn, N: n})
			}
		})
		busy = busy || b
	}
	return won, busy
}

// Learn reports the chunks of p that the kernel program has placed.
func (in *Intake) Learn(p *Placement) {
	p.Fresh(func(psn, n uint32) { in.appendRun(p, wire.Range{PSN: psn, N: n}) })
}

func (in *Intake) current() *Report {
	if in.report == nil {
		in.report = in.fresh()
	}
	return in.report
}
