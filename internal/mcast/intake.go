package mcast

import (
	"github.com/allcast/allcast/internal/place"
	"github.com/allcast/allcast/internal/wire"
)

// An Intake is the receive worker of one subgroup, without its I/O: it decides, datagram by
// datagram and for all operations of a process, where payloads belong, and reports which chunks
// are in place. Its driver moves the bytes. One goroutine at a time uses it.
//
// A driver that can let the network write straight to the receive buffer asks for Expect, lets
// datagrams arrive there, checks them with Fits, and says with Arrived how many are where they
// belong. It hands over all others one by one: it asks Judge, moves the payload and calls Place, or
// calls Ignore.
type Intake struct {
	layout wire.Layout
	limit  uint32         // chunks of a report
	fresh  func() *Report // makes an empty one
	taken  *place.Taken
	open   map[uint64]*Placement

	last    *Placement // of the chunk placed last,
	next    uint32     // and the chunk after it
	guess   *Placement // of the last Expect,
	guessed uint32     // and its first chunk
	report  *Report
}

// A Report is what an Intake did since the last one.
type Report struct {
	Runs    []PlacedRun
	Chunks  uint32 // in all Runs
	Ignored Ignored
	Comm    uint32 // whose operation late datagrams were of
}

// A PlacedRun is consecutive chunks that are in place. Each chunk is reported once.
type PlacedRun struct {
	*Placement
	wire.Range
}

// Ignored counts datagrams that were taken off the receive queue and placed nothing.
type Ignored struct {
	Duplicates, Late, Foreign, Stale uint64 // by Verdict
}

// MaxRuns is how many runs a report holds at most.
const MaxRuns = 64

// A Slot is where a chunk belongs in the receive buffer.
type Slot struct {
	Off int64
	Len int
}

// NewIntake returns the Intake of a subgroup. It reports after limit chunks at the latest, so that
// credit flows while data keeps coming; fresh makes empty reports. All Intakes of a process share
// taken.
func NewIntake(l wire.Layout, limit uint32, taken *place.Taken, fresh func() *Report) *Intake {
	return &Intake{layout: l, limit: max(1, limit), taken: taken, fresh: fresh, open: map[uint64]*Placement{}}
}

// Open lets datagrams with a token be placed.
func (in *Intake) Open(token uint64, p *Placement) {
	p.token, p.slot = token, in.layout.Slot(p.Seq)
	in.open[token] = p
}

// Close ends that. Nothing is placed for p any more.
func (in *Intake) Close(p *Placement) {
	if in.open[p.token] == p {
		delete(in.open, p.token)
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

// Each calls f for every placement that is open, in any order.
func (in *Intake) Each(f func(*Placement)) {
	for _, p := range in.open {
		f(p)
	}
}

// Last is the placement of the last datagram; nil: there is none.
func (in *Intake) Last() *Placement { return in.last }

// Expect fills slots with where the next datagrams most likely belong, in order, and returns the
// placement and how many.
func (in *Intake) Expect(slots []Slot) (p *Placement, n int) {
	in.guess, in.guessed = in.last, in.next
	p = in.last
	if p == nil || p.IsShared() {
		return nil, 0
	}
	for n < len(slots) {
		psn := in.next + uint32(n)
		if psn >= p.Len() || !p.Free(psn) {
			break
		}
		slots[n].Off, slots[n].Len = p.Locate(psn)
		n++
		if slots[n-1].Len != slots[0].Len {
			break // the end of a block: the last of its super-packet
		}
	}
	return p, n
}

// Guess is the placement of the last Expect; nil: there is none.
func (in *Intake) Guess() *Placement { return in.guess }

// Fits reports whether a datagram that filled the i-th slot of the last Expect belongs there.
func (in *Intake) Fits(i int, token uint64, imm uint32) bool {
	p := in.guess
	psn := in.guessed + uint32(i)
	return p != nil && token == p.token && imm == in.layout.Imm(p.Seq, psn) && p.Free(psn)
}

// Arrived says that the first n slots of the last Expect hold what belongs there.
func (in *Intake) Arrived(n int) {
	if n > 0 {
		in.taken.Add(uint64(n))
		in.Place(in.guess, wire.Range{PSN: in.guessed, N: uint32(n)})
	}
}

// Judge decides about one datagram. With Placed, its payload belongs at offset off of p's receive
// buffer.
func (in *Intake) Judge(token uint64, comm, imm uint32, length int) (p *Placement, psn uint32, off int64, v Verdict) {
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
	off, v = p.judge(psn, length)
	return p, psn, off, v
}

// Place says that chunks which were free, or which the driver has claimed, are in place.
func (in *Intake) Place(p *Placement, q wire.Range) {
	p.Finish(q.PSN, q.N)
	in.last, in.next = p, q.PSN+q.N
	in.note(p, q)
}

// note reports chunks that are in place.
func (in *Intake) note(p *Placement, q wire.Range) {
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

// Flush returns what there is to report, and forgets it; nil: nothing.
func (in *Intake) Flush() *Report {
	r := in.report
	in.report = nil
	return r
}

// Ignore counts datagrams that placed nothing. p is nil if they are stale.
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

// Claim claims chunks for a read: datagrams no longer place them. It appends to won those that the
// read is to place; the others are in place already. It reports busy if a program in the kernel is
// writing some of them, and is then called again.
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

// Learn reports the chunks of p that a program in the kernel has placed.
func (in *Intake) Learn(p *Placement) {
	p.Fresh(func(psn, n uint32) { in.note(p, wire.Range{PSN: psn, N: n}) })
}

func (in *Intake) current() *Report {
	if in.report == nil {
		in.report = in.fresh()
	}
	return in.report
}
