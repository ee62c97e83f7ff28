package clustertest

import (
	"fmt"
	"math/rand/v2"
	"strings"

	"github.com/allcast/allcast/internal/step"
)

// TB is the common part of *testing.T, *testing.B and *rapid.T.
type TB interface {
	Helper()
	Fatalf(format string, args ...any)
}

// A Machine is the state machine of one rank together with its driver.
type Machine interface {
	// NextTimer is when Timer is due, step.Never if it is not.
	NextTimer() step.Time
	// Timer handles a due timer, carries out the actions and reports whether anything happened.
	Timer() bool
	// Check checks what must hold after every event.
	Check()
	// Done reports whether the rank expects no more events.
	Done() bool
	// String describes the state for failure reports.
	String() string
}

// Untimed is embedded in a Machine that has no timer and nothing to check after each event.
type Untimed struct{}

// NextTimer returns step.Never.
func (Untimed) NextTimer() step.Time { return step.Never }

// Timer does nothing.
func (Untimed) Timer() bool { return false }

// Check does nothing.
func (Untimed) Check() {}

// TimerPolicy says when a Cluster fires timers that are due.
type TimerPolicy uint8

// When due timers fire.
const (
	TimersFirst   TimerPolicy = iota // before anything else
	TimersSampled                    // after an event: at its rank and at a random rank
	TimersIdle                       // only when no event is pending
)

// A Cluster is the ranks of a job and the events that are pending at them.
type Cluster struct {
	T        TB
	Subject  any // of the test, for failure reports
	Seed     uint64
	Rand     *rand.Rand
	Now      step.Time
	Order    Order
	Timers   TimerPolicy
	MaxSpins int                 // timers in a row that do nothing and stay due
	Delay    func() step.Time    // time that passes before an event; nil: one nanosecond
	Before   func()              // runs when that time has passed
	Skip     func(*Pending) bool // passes over the event that was chosen
	Ranks    []*Rank

	ready  []*Pending // queues with events
	serial uint64     // of the last event
	events uint64     // that happened
	trace  [48]traced
}

// A Rank is one place where events happen. A dead rank takes no events.
type Rank struct {
	Machine
	ID      int
	Stopped bool // whether it handles neither events nor timers
	Dead    bool
	spins   int
}

type traced struct {
	at step.Time
	q  *Pending // nil: a timer
	r  *Rank
}

// New returns a Cluster without ranks that delivers at random.
func New(t TB, seed uint64) *Cluster {
	return &Cluster{T: t, Seed: seed, Rand: rand.New(rand.NewPCG(seed, 0)), Order: Random}
}

// Add adds a rank. Its Machine may be set later.
func (c *Cluster) Add(id int, m Machine) *Rank {
	r := &Rank{Machine: m, ID: id}
	c.Ranks = append(c.Ranks, r)
	return r
}

// Kill stops a rank for good and forgets the events that are pending at it.
func (c *Cluster) Kill(r *Rank) {
	r.Dead = true
	for i := len(c.ready) - 1; i >= 0; i-- {
		if q := c.ready[i]; q.At == r {
			q.clear()
		}
	}
}

func (r *Rank) runs() bool { return !r.Dead && !r.Stopped }

func (r *Rank) due(now step.Time) bool { return r.runs() && r.NextTimer() <= now }

// Step lets the next event happen. It reports false if nothing is pending and no timer is set.
func (c *Cluster) Step() bool { return c.StepBefore(step.Never) }

// StepBefore lets the next event happen, unless it is a timer that is not due before end.
func (c *Cluster) StepBefore(end step.Time) bool {
	if c.Timers == TimersFirst {
		for _, r := range c.Ranks {
			if r.due(c.Now) {
				c.fire(r)
				return true
			}
		}
	}
	q := c.Order(c, c.ready)
	if q == nil {
		return c.FireNext(end)
	}
	if c.Delay == nil {
		c.Now++
	} else {
		c.Now += c.Delay()
	}
	if c.Before != nil {
		c.Before()
	}
	if len(q.stamps) == 0 || c.Skip != nil && c.Skip(q) {
		return true
	}
	c.Happen(q)
	if c.Timers == TimersSampled {
		c.fireIfDue(q.At)
		c.fireIfDue(c.Ranks[c.Rand.IntN(len(c.Ranks))])
	}
	return true
}

// Happen lets the next event of a queue happen.
func (c *Cluster) Happen(q *Pending) {
	c.note(q, q.At)
	q.happen()
	if !q.At.Dead {
		q.At.Check()
	}
}

// FireNext advances the clock to the next timer and fires all that are due. It reports false if
// there is none before end.
func (c *Cluster) FireNext(end step.Time) bool {
	next := step.Never
	for _, r := range c.Ranks {
		if r.runs() {
			next = min(next, r.NextTimer())
		}
	}
	if next >= end {
		return false
	}
	c.Now = max(c.Now, next)
	for _, r := range c.Ranks {
		c.fireIfDue(r)
	}
	return true
}

func (c *Cluster) fireIfDue(r *Rank) {
	if r.due(c.Now) {
		c.fire(r)
	}
}

func (c *Cluster) fire(r *Rank) {
	c.note(nil, r)
	acted := r.Timer()
	if acted || r.NextTimer() > c.Now {
		r.spins = 0
	} else if r.spins++; r.spins > c.MaxSpins {
		c.Failf("rank %d: its timer fires again and again without effect", r.ID)
	}
	r.Check()
}

// Run lets events happen until all living ranks are done and nothing is pending.
func (c *Cluster) Run(limit int) {
	c.T.Helper()
	c.until("the end", limit, func() bool {
		if c.pending() {
			return false
		}
		for _, r := range c.Ranks {
			if !r.Dead && !r.Done() {
				return false
			}
		}
		return true
	})
}

// Until lets events happen until a condition holds.
func (c *Cluster) Until(what string, holds func() bool) {
	c.T.Helper()
	c.until(what, 2_000_000, holds)
}

func (c *Cluster) until(what string, limit int, holds func() bool) {
	c.T.Helper()
	for range limit {
		if holds() {
			return
		}
		if !c.Step() {
			c.Failf("stuck before %s: nothing is pending and no timer is set", what)
		}
	}
	c.Failf("no end: %d events did not lead to %s", limit, what)
}

// RunFor lets events happen for some time.
func (c *Cluster) RunFor(d step.Time) {
	for end := c.Now + d; c.Now < end; {
		if !c.StepBefore(end) {
			c.Now = end
		}
	}
}

// Drain lets events happen, at most limit of them, until none is pending. No timer fires meanwhile.
func (c *Cluster) Drain(limit int) {
	timers := c.Timers
	c.Timers = TimersIdle
	for ; limit > 0 && c.StepBefore(0); limit-- {
	}
	c.Timers = timers
}

// Round lets everything happen that is pending in the queues of the given kind, oldest first, but
// not what that causes. It reports whether anything was pending.
func (c *Cluster) Round(kind string) (happened bool) {
	for last := c.serial; ; happened = true {
		q := oldest(c.ready, func(q *Pending) bool { return q.enabled() && q.Kind == kind && q.stamps[0].serial <= last })
		if q == nil {
			return happened
		}
		f := q.Faults
		q.Faults = Faults{}
		c.Happen(q)
		q.Faults = f
	}
}

func (c *Cluster) pending() bool {
	for _, q := range c.ready {
		if q.enabled() {
			return true
		}
	}
	return false
}

func (c *Cluster) note(q *Pending, r *Rank) {
	c.trace[c.events%uint64(len(c.trace))] = traced{c.Now, q, r}
	c.events++
}

// Failf fails the test with a report that replays and explains the failure.
func (c *Cluster) Failf(format string, args ...any) {
	c.T.Helper()
	c.T.Fatalf("%s\n%s", fmt.Sprintf(format, args...), c.Report())
}

// Report describes the ranks, the pending events and the last events.
func (c *Cluster) Report() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%v: seed %d, time %d, after %d events\n", c.Subject, c.Seed, c.Now, c.events)
	for _, r := range c.Ranks {
		if r.Machine == nil || r.Done() && !r.Dead {
			continue
		}
		fmt.Fprintf(&b, "rank %d: dead %v, stopped %v, %v\n", r.ID, r.Dead, r.Stopped, r.Machine)
	}
	for _, q := range c.ready {
		fmt.Fprintf(&b, "pending: %d of %v, held %v\n", len(q.stamps), q, q.Held)
	}
	first := c.events - min(c.events, uint64(len(c.trace)))
	for i := first; i < c.events; i++ {
		e := c.trace[i%uint64(len(c.trace))]
		if e.q == nil {
			fmt.Fprintf(&b, "%12d rank %d: timer\n", e.at, e.r.ID)
		} else {
			fmt.Fprintf(&b, "%12d %v\n", e.at, e.q)
		}
	}
	return b.String()
}
