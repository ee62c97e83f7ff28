package reproduce

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/allcast/allcast/internal/paper"
)

// parallel is the number of entries that run at once, unless they measure real time.
const parallel = 2

// grace is the time that an entry with a lab gets to take it down after an interruption.
const grace = 20 * time.Second

// Options say what runs.
type Options struct {
	Entries []paper.Entry
	Seed    uint64
	Quick   bool
	Root    bool   // whether labs can be built
	Self    string // path of this program
	// Progress is called with the share of the work that is done, from 0 to 1, and what runs now. Calls do not overlap.
	Progress func(share float64, what string)
}

// Result is an entry with its outcome.
type Result struct {
	paper.Subject
	*paper.Outcome
	Needs  string
	Took   time.Duration
	Failed bool // whether the entry could not be computed; Reason has the error
	Worse  bool // than the recorded verdict
	svgs   []string
}

// Run runs entries and returns their results in the same order. Its only error is the cause with which the context
// ended.
func Run(ctx context.Context, o Options) ([]*Result, error) {
	r := &runner{
		Options: o,
		env:     &paper.Env{Seed: o.Seed, Quick: o.Quick, Root: o.Root, Self: o.Self},
		results: make([]*Result, len(o.Entries)), done: make([]float64, len(o.Entries)),
	}
	var together, alone []int
	for i, e := range o.Entries {
		if e.Alone || e.Needs != "" {
			alone = append(alone, i)
		} else {
			together = append(together, i)
		}
	}
	// Long entries first: they keep both workers busy, and claims find what their figures have computed.
	slices.SortStableFunc(together, func(a, b int) int { return cmp.Compare(r.expected(b), r.expected(a)) })
	r.runAll(ctx, together, parallel, 0)
	r.runAll(ctx, alone, 1, grace)
	r.silence()
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return r.results, nil
}

type runner struct {
	Options
	env     *paper.Env
	results []*Result

	mu   sync.Mutex
	done []float64 // share of each entry
}

// runAll runs entries with several workers. After an interruption it waits for them only for a limited time, because a
// simulation does not stop at once.
func (r *runner) runAll(ctx context.Context, indices []int, workers int, grace time.Duration) {
	queue := make(chan int, len(indices))
	for _, i := range indices {
		queue <- i
	}
	close(queue)
	var wg sync.WaitGroup
	for range min(workers, len(indices)) {
		wg.Go(func() {
			for i := range queue {
				if ctx.Err() == nil {
					r.runOne(ctx, i)
				}
			}
		})
	}
	finished := make(chan struct{})
	go func() { wg.Wait(); close(finished) }()
	select {
	case <-finished:
		return
	case <-ctx.Done():
	}
	select {
	case <-finished:
	case <-time.After(grace):
	}
}

func (r *runner) runOne(ctx context.Context, i int) {
	e := r.Entries[i]
	r.report(i, 0, "")
	start := time.Now()
	outcome, err := e.Run(ctx, r.env.ForEntry(func(done float64, what string) { r.report(i, done, what) }))
	result := &Result{Subject: subjectOf(e.ID), Outcome: outcome, Needs: e.Needs, Took: time.Since(start)}
	if err == nil {
		result.svgs, err = check(outcome)
	}
	if err != nil {
		result.Failed = true
		reason := fmt.Sprintf("It failed: %s.", strings.TrimSpace(err.Error()))
		result.Outcome = &paper.Outcome{Verdict: paper.CannotShow, Reason: reason}
	}
	result.Worse = r.worse(result)
	r.results[i] = result
	r.report(i, 1, "")
}

// worse reports whether a result is worse than the recorded verdict. --quick and a machine without the entry's needs
// leave things out, so what they cannot show says nothing about the claim. A failure always counts.
func (r *runner) worse(result *Result) bool {
	if result.Failed {
		return true
	}
	excused := r.Quick || len(result.LeftOut) > 0 || result.Needs != "" && !r.Root
	if result.Verdict == paper.CannotShow && excused {
		return false
	}
	return result.Verdict < result.Recorded
}

func subjectOf(id string) paper.Subject {
	for _, s := range paper.Subjects() {
		if s.ID == id {
			return s
		}
	}
	return paper.Subject{ID: id}
}

// report computes the share of all work that is done, by the expected times of the entries.
func (r *runner) report(i int, done float64, what string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.done[i] = max(r.done[i], min(done, 1))
	if r.Progress == nil {
		return
	}
	var passed, all float64
	for k := range r.Entries {
		t := r.expected(k).Seconds()
		passed, all = passed+r.done[k]*t, all+t
	}
	if what != "" {
		what = ", " + what
	}
	r.Progress(passed/max(all, 1e-9), r.Entries[i].ID+what)
}

// expected is about how long an entry takes.
func (r *runner) expected(i int) time.Duration {
	if r.Quick {
		return r.Entries[i].Quick
	}
	return r.Entries[i].Full
}

// silence ends all reports, also those of entries that still run after an interruption.
func (r *runner) silence() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.Progress = nil
}

// errNoOutcome is the error of an entry that returns nothing.
var errNoOutcome = errors.New("it returned no outcome")
