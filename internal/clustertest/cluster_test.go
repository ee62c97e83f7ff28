package clustertest

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/allcast/allcast/internal/step"
	"github.com/allcast/allcast/internal/wire"
)

// probe is a Machine that records what happens to it.
type probe struct {
	timer step.Time
	stuck bool // whether its timer stays due
	fired int
	done  bool
}

func (p *probe) NextTimer() step.Time { return p.timer }
func (p *probe) Check()               {}
func (p *probe) Done() bool           { return p.done }
func (p *probe) String() string       { return "a probe" }

func (p *probe) Timer() bool {
	p.fired++
	if !p.stuck {
		p.timer = step.Never
	}
	return false
}

// reports is a TB that records failures and ends the function under test.
type reports struct{ text string }

func (r *reports) Helper() {}
func (r *reports) Fatalf(format string, args ...any) {
	r.text = fmt.Sprintf(format, args...)
	panic(r)
}

// failure returns the report of a function that must fail the test.
func failure(t *testing.T, c *Cluster, f func()) (text string) {
	t.Helper()
	r := &reports{}
	c.T = r
	defer func() {
		if recover() != r {
			t.Error("it did not fail")
		}
		text = r.text
	}()
	f()
	return ""
}

// newProbes makes a cluster of ranks, each with a queue whose events are recorded.
func newProbes(t *testing.T, seed uint64, ranks int) (c *Cluster, qs []*Queue[int], happened *[]int) {
	t.Helper()
	c, happened = New(t, seed), new([]int)
	for r := range ranks {
		at := c.Add(r, &probe{timer: step.Never})
		qs = append(qs, NewQueue(c, "number", at, r, func(n int) { *happened = append(*happened, n) }))
	}
	return c, qs, happened
}

func TestOrders(t *testing.T) {
	for name, order := range map[string]Order{
		"random": Random, "oldest": Oldest, "newest": Newest, "fair": Fair(5),
		"avoid": Avoid(func(q *Pending) bool { return q.At.ID == 0 }),
	} {
		c, qs, happened := newProbes(t, 1, 4)
		c.Order = order
		for i := range 40 {
			qs[i%4].Push(i)
		}
		c.Drain(1 << 20)
		all := slices.Sorted(slices.Values(*happened))
		if len(all) != 40 || len(slices.Compact(all)) != 40 {
			t.Fatalf("%s: %v", name, *happened)
		}
		for r := range 4 { // each queue keeps its order
			own := slices.DeleteFunc(slices.Clone(*happened), func(n int) bool { return n%4 != r })
			if !slices.IsSorted(own) {
				t.Errorf("%s: rank %d: %v", name, r, own)
			}
		}
		if name == "oldest" && !slices.IsSorted(*happened) {
			t.Errorf("oldest: %v", *happened)
		}
		if last := (*happened)[30:]; name == "avoid" && slices.ContainsFunc(last, func(n int) bool { return n%4 != 0 }) {
			t.Errorf("a late queue did not come last: %v", *happened)
		}
	}
}

// The same seed gives the same run, and another seed gives another one.
func TestSeedDecides(t *testing.T) {
	run := func(seed uint64) []int {
		c, qs, happened := newProbes(t, seed, 3)
		for _, q := range qs {
			q.Faults = Faults{Loss: 0.2, Duplicate: 0.2, Reorder: 0.5}
		}
		for i := range 60 {
			qs[i%3].Push(i)
		}
		c.Drain(1 << 20)
		return *happened
	}
	if !slices.Equal(run(7), run(7)) || slices.Equal(run(7), run(8)) {
		t.Error("runs do not follow from their seeds")
	}
}

func TestFaults(t *testing.T) {
	run := func(f Faults) []int {
		c, qs, happened := newProbes(t, 3, 1)
		qs[0].Faults = f
		for i := range 1000 {
			qs[0].Push(i)
		}
		c.Drain(1 << 20)
		return *happened
	}
	if got := run(Faults{Loss: 0.5}); len(got) < 400 || len(got) > 600 || !slices.IsSorted(got) {
		t.Errorf("half of 1000 lost: %d are left", len(got))
	}
	if got := run(Faults{Duplicate: 0.5}); len(got) < 1800 || len(got) > 2200 {
		t.Errorf("each of 1000 duplicated about once: %d", len(got))
	}
	if got := run(Faults{Reorder: 1}); len(got) != 1000 || slices.IsSorted(got) {
		t.Errorf("reordered: %d", len(got))
	}
	if got := run(Faults{Loss: 1}); len(got) != 0 {
		t.Errorf("all lost: %v", got)
	}
}

func TestFate(t *testing.T) {
	c, qs, happened := newProbes(t, 1, 1)
	q := qs[0]
	q.Fate = func(n int) Fate { return Fate(n % 3) }
	for i := range 9 {
		q.Push(i)
	}
	q.Release(func(n int) bool { return n == 5 })
	c.Drain(99)
	if want := []int{0, 3, 6, 5}; !slices.Equal(*happened, want) || !slices.Equal(q.Kept(), []int{2, 8}) {
		t.Errorf("%v happened, %v are kept", *happened, q.Kept())
	}
	q.Forget()
	q.Release(nil)
	if q.Len() != 0 {
		t.Errorf("%v are pending", q.Items())
	}
}

// Held queues, stopped ranks and queues that are not ready wait; dead ranks forget.
func TestWaiting(t *testing.T) {
	c, qs, happened := newProbes(t, 1, 4)
	ready := false
	qs[0].Held, qs[1].At.Stopped, qs[2].Ready = true, true, func() bool { return ready }
	for r, q := range qs {
		q.Push(r)
	}
	c.Kill(qs[3].At)
	qs[3].Push(99)
	if c.Drain(99); len(*happened) > 0 || c.pending() {
		t.Fatalf("%v happened", *happened)
	}
	qs[0].Held, qs[1].At.Stopped, ready = false, false, true
	if c.Drain(99); !slices.Equal(slices.Sorted(slices.Values(*happened)), []int{0, 1, 2}) {
		t.Errorf("%v happened", *happened)
	}
}

// Round lets only pending events of one kind happen, not those that they cause.
func TestRound(t *testing.T) {
	c, qs, happened := newProbes(t, 1, 2)
	other := NewQueue(c, "other", qs[0].At, 0, func(int) { t.Error("another kind") })
	other.Push(1)
	do := qs[0].Do
	qs[0].Do = func(n int) { do(n); qs[1].Push(n + 10) }
	qs[0].Push(1)
	qs[1].Push(2)
	if !c.Round("number") || !slices.Equal(*happened, []int{1, 2}) {
		t.Errorf("first round: %v", *happened)
	}
	if !c.Round("number") || c.Round("number") || !slices.Equal(*happened, []int{1, 2, 11}) {
		t.Errorf("second round: %v", *happened)
	}
}

func TestTimers(t *testing.T) {
	c, qs, _ := newProbes(t, 1, 2)
	p := qs[1].At.Machine.(*probe)
	p.timer = 100
	qs[0].Push(1)
	if c.RunFor(50); c.Now != 50 || p.fired != 0 {
		t.Errorf("time %d, %d timers fired", c.Now, p.fired)
	}
	if c.RunFor(60); p.fired != 1 {
		t.Errorf("time %d, %d timers fired", c.Now, p.fired)
	}
	if c.Step() {
		t.Error("there is nothing to do")
	}
	p.timer, p.stuck = 0, true
	if text := failure(t, c, func() { c.Step() }); !strings.Contains(text, "again and again") {
		t.Error(text)
	}
}

// A report tells the seed, the ranks that are not done, the pending and the last events.
func TestReport(t *testing.T) {
	c, qs, _ := newProbes(t, 42, 2)
	qs[0].At.Machine.(*probe).done = true
	qs[0].Push(1)
	qs[1].Push(2)
	qs[1].Held = true
	text := failure(t, c, func() { c.Run(9) })
	for _, want := range []string{
		"stuck before the end", "seed 42", "rank 1: dead false, stopped false, a probe",
		"pending: 1 of number at rank 1, held true", "number at rank 0",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the report lacks %q:\n%s", want, text)
		}
	}
}

func TestReference(t *testing.T) {
	for _, kind := range []wire.CallKind{
		wire.Broadcast, wire.Allgather, wire.ReduceScatter, wire.Allreduce, wire.Barrier,
	} {
		f := &Reference{Kind: kind, Size: 3, Root: 1, Counts: []int64{3, 0, 5}, Seed: 9}
		if kind == wire.Barrier {
			f.Counts = nil
		}
		for r := range f.Size {
			good := slices.Clone(f.Want())
			if err := f.Check(r, good); err != nil {
				t.Errorf("%v: %v", kind, err)
			}
			for lo, hi := f.Wanted(r); lo < hi; lo++ {
				good[lo]++
				if f.Check(r, good) == nil {
					t.Errorf("%v: a wrong byte %d at rank %d is not found", kind, lo, r)
				}
				good[lo]--
			}
			if in := f.Input(r); kind != wire.Barrier && slices.Equal(in, f.Want()) != (kind == wire.Broadcast && r == f.Root) {
				t.Errorf("%v: rank %d begins with %v, the result is %v", kind, r, in, f.Want())
			}
		}
	}
}

// Only tests import this package.
func TestOnlyTestsImport(t *testing.T) {
	root := filepath.Join("..", "..")
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		b, err := os.ReadFile(path)
		if strings.Contains(string(b), "\"github.com/allcast/allcast/internal/clustertest\"") {
			t.Errorf("%s imports clustertest", path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}
