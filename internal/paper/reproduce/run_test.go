package reproduce

import (
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/allcast/allcast/internal/figure"
	"github.com/allcast/allcast/internal/paper"
)

// entry returns an entry with a known ID that does what the test wants.
func entry(id string, run func(context.Context, *paper.Env) (*paper.Outcome, error)) paper.Entry {
	return paper.Entry{ID: id, Quick: time.Second, Full: time.Second, Run: run}
}

func giving(o paper.Outcome) func(context.Context, *paper.Env) (*paper.Outcome, error) {
	return func(context.Context, *paper.Env) (*paper.Outcome, error) { return &o, nil }
}

func runAll(t *testing.T, o Options) []*Result {
	t.Helper()
	results, err := Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	return results
}

// fig7 is recorded as a hit.
func TestWorseThanRecorded(t *testing.T) {
	if s := subjectOf("fig7"); s.Recorded != paper.Hit || s.Title == "" {
		t.Fatalf("%+v", s)
	}
	for _, c := range []struct {
		name    string
		verdict paper.Verdict
		leftOut []string
		needs   string
		quick   bool
		root    bool
		want    bool
	}{
		{name: "hit", verdict: paper.Hit},
		{name: "miss", verdict: paper.Miss, want: true},
		{name: "miss, quick", verdict: paper.Miss, quick: true, want: true},
		{name: "miss without root", verdict: paper.Miss, needs: "root", want: true},
		{name: "cannot show", verdict: paper.CannotShow, want: true},
		{name: "cannot show with root", verdict: paper.CannotShow, needs: "root", root: true, want: true},
		{name: "cannot show without root", verdict: paper.CannotShow, needs: "root"},
		{name: "cannot show, quick", verdict: paper.CannotShow, quick: true},
		{name: "cannot show, parts left out", verdict: paper.CannotShow, leftOut: []string{"lab"}, root: true},
	} {
		e := entry("fig7", giving(paper.Outcome{Verdict: c.verdict, LeftOut: c.leftOut}))
		e.Needs = c.needs
		r := runAll(t, Options{Entries: []paper.Entry{e}, Quick: c.quick, Root: c.root})[0]
		if r.Worse != c.want || r.Failed {
			t.Errorf("%s: worse %v, want %v", c.name, r.Worse, c.want)
		}
	}
}

// An entry that cannot be written has failed, and the others are not affected.
func TestFailures(t *testing.T) {
	undrawable := figure.Figure{
		X: figure.Axis{Label: "x"}, Y: figure.Axis{Label: "y"},
		Series: []figure.Series{{Name: "s", Style: figure.Points, Data: []figure.Point{{X: math.NaN()}}}},
	}
	table := func(row ...any) paper.Table {
		return paper.Table{Name: "t", Columns: []string{"a"}, Rows: [][]any{row}}
	}
	entries := []paper.Entry{
		entry("C4", giving(paper.Outcome{Verdict: paper.Hit})),
		entry("fig7", func(context.Context, *paper.Env) (*paper.Outcome, error) { return nil, errors.New("broken") }),
		entry("C5", func(context.Context, *paper.Env) (*paper.Outcome, error) { return nil, nil }), //nolint:nilnil // tested
		entry("C6", giving(paper.Outcome{Tables: []paper.Table{table(1, 2)}})),
		entry("C6", giving(paper.Outcome{Tables: []paper.Table{{Name: "../t"}}})),
		entry("C6", giving(paper.Outcome{Tables: []paper.Table{{Name: "t"}, {Name: "t"}}})),
		entry("C6", giving(paper.Outcome{Tables: []paper.Table{table(math.Inf(1))}})),
		entry("C6", giving(paper.Outcome{Figures: []paper.NamedFigure{{Name: "f", Figure: undrawable}}})),
		entry("C6", giving(paper.Outcome{Figures: []paper.NamedFigure{{Name: entryName}}})),
	}
	want := []string{
		"", "broken", "no outcome", "2 cells for 1 columns", "no file name", "used twice", "unsupported value", "finite",
		"used twice",
	}
	for i, r := range runAll(t, Options{Entries: entries, Quick: true}) {
		if r.Failed != (want[i] != "") || r.Worse != r.Failed || !strings.Contains(r.Reason, want[i]) {
			t.Errorf("entry %d: failed %v, worse %v, reason %q, want %q", i, r.Failed, r.Worse, r.Reason, want[i])
		}
		if r.Failed && r.Verdict != paper.CannotShow {
			t.Errorf("entry %d: %v", i, r.Verdict)
		}
	}
}

// Two entries run at once, but an entry that measures runs alone. Results keep the order.
func TestMeasurementsRunAlone(t *testing.T) {
	var running atomic.Int32
	both := make(chan struct{})
	meet := func(send bool) func(context.Context, *paper.Env) (*paper.Outcome, error) {
		return func(context.Context, *paper.Env) (*paper.Outcome, error) {
			running.Add(1)
			defer running.Add(-1)
			if send {
				both <- struct{}{}
			} else {
				<-both
			}
			return &paper.Outcome{}, nil
		}
	}
	alone := func(context.Context, *paper.Env) (*paper.Outcome, error) {
		if n := running.Add(1); n != 1 {
			t.Errorf("%d entries run beside a measurement", n-1)
		}
		defer running.Add(-1)
		return &paper.Outcome{}, nil
	}
	entries := []paper.Entry{
		entry("fig5", alone), entry("fig7", meet(true)), entry("C15", alone), entry("C4", meet(false)), entry("C5", alone),
	}
	entries[0].Alone, entries[2].Needs, entries[4].Alone = true, "root", true
	var ids []string
	for _, r := range runAll(t, Options{Entries: entries}) {
		ids = append(ids, r.ID)
	}
	if want := []string{"fig5", "fig7", "C15", "C4", "C5"}; !slices.Equal(ids, want) {
		t.Errorf("order %v, want %v", ids, want)
	}
}

func TestInterruption(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	stop := errors.New("stop")
	started := 0
	entries := []paper.Entry{
		entry("fig7", func(ctx context.Context, _ *paper.Env) (*paper.Outcome, error) {
			started++
			cancel(stop)
			<-ctx.Done()
			return nil, ctx.Err()
		}),
		entry("C4", func(context.Context, *paper.Env) (*paper.Outcome, error) { started++; return &paper.Outcome{}, nil }),
	}
	entries[0].Alone, entries[1].Alone = true, true
	if results, err := Run(ctx, Options{Entries: entries}); !errors.Is(err, stop) || results != nil || started != 1 {
		t.Errorf("%v, %v, %d started", results, err, started)
	}
}

// A simulation that does not look at the context must not delay the end.
func TestInterruptionDoesNotWaitForSimulations(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	release, ended := make(chan struct{}), make(chan struct{})
	deaf := entry("fig7", func(_ context.Context, e *paper.Env) (*paper.Outcome, error) {
		defer close(ended)
		cancel()
		<-release
		e.Progress(0.5, "too late")
		return &paper.Outcome{}, nil
	})
	reports := 0
	_, err := Run(ctx, Options{Entries: []paper.Entry{deaf}, Progress: func(float64, string) { reports++ }})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
	before := reports
	close(release)
	<-ended
	if reports != before {
		t.Error("progress after the end")
	}
}

func TestProgressIsWeighted(t *testing.T) {
	long := entry("fig7", func(_ context.Context, e *paper.Env) (*paper.Outcome, error) {
		e.Progress(0.5, "half")
		return &paper.Outcome{}, nil
	})
	long.Full, long.Alone = 3*time.Second, true
	short := entry("C4", giving(paper.Outcome{}))
	short.Alone = true
	var shares []float64
	var whats []string
	runAll(t, Options{Entries: []paper.Entry{long, short}, Progress: func(share float64, what string) {
		shares, whats = append(shares, share), append(whats, what)
	}})
	if !slices.Equal(shares, []float64{0, 0.375, 0.75, 0.75, 1}) || whats[1] != "fig7, half" {
		t.Errorf("%v, %q", shares, whats)
	}
}

func TestSelect(t *testing.T) {
	all := []paper.Entry{{ID: "fig7"}, {ID: "C4"}, {ID: "C5"}}
	for list, want := range map[string]string{"": "fig7 C4 C5", "c5,fig7": "fig7 C5", "C4, C4": "C4"} {
		var ids []string
		if list != "" {
			ids = strings.Split(list, ",")
		}
		got, err := Select(all, ids)
		var names []string
		for _, e := range got {
			names = append(names, e.ID)
		}
		if strings.Join(names, " ") != want || err != nil {
			t.Errorf("%q selects %v (%v), want %s", list, names, err, want)
		}
	}
	if _, err := Select(all, []string{"fig8"}); err == nil || !strings.Contains(err.Error(), "valid: fig7, C4, C5") {
		t.Errorf("fig8: %v", err)
	}
}
