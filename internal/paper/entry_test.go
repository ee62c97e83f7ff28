package paper

import (
	"encoding/json"
	"errors"
	"slices"
	"testing"
)

func TestEverySubjectHasOneEntry(t *testing.T) {
	entries := make(map[string]int)
	for _, e := range Entries() {
		entries[e.ID]++
		if e.Run == nil || e.Quick <= 0 || e.Full <= 0 {
			t.Errorf("%s: Run, Quick or Full is missing", e.ID)
		}
	}
	r := mustLoad(t)
	subjects := r.subjects()
	if len(subjects) != len(r.Claims)+len(r.Figures) {
		t.Errorf("%d subjects for %d claims and %d figures", len(subjects), len(r.Claims), len(r.Figures))
	}
	for _, s := range subjects {
		if entries[s.ID] != 1 {
			t.Errorf("%s has %d entries, want 1", s.ID, entries[s.ID])
		}
		delete(entries, s.ID)
	}
	for id := range entries {
		t.Errorf("entry %s is not in internal/paper/claims.json", id)
	}
}

func TestFiguresAreComplete(t *testing.T) {
	r := mustLoad(t)
	for _, f := range r.Figures {
		if f.Where == "" || f.Title == "" || f.Paper == "" || f.Tolerance == "" || len(f.Claims) == 0 {
			t.Errorf("%s: a field is empty: %+v", f.ID, f)
		}
		for _, p := range f.Points {
			if p.Name == "" || p.X == "" || p.Y == "" || len(p.Data) == 0 {
				t.Errorf("%s: a field of its points is empty: %+v", f.ID, p)
			}
			if got := paperPoints(f.ID, p.Name, "points"); !got.Paper || !slices.Equal(got.Data, p.Data) {
				t.Errorf("%s: points %s: %+v", f.ID, p.Name, got)
			}
		}
	}
}

func TestVerdictHasAName(t *testing.T) {
	for _, v := range []Verdict{CannotShow, Miss, Hit} {
		text, err := json.Marshal(v)
		var back Verdict
		if err != nil || json.Unmarshal(text, &back) != nil || back != v {
			t.Errorf("%v becomes %s, then %v (%v)", v, text, back, err)
		}
	}
	var v Verdict
	if err := json.Unmarshal([]byte(`"perhaps"`), &v); err == nil {
		t.Error("an unknown verdict is accepted")
	}
}

func TestCachedValuesAreShared(t *testing.T) {
	var e Env
	calls := 0
	one := func(e *Env) (int, error) {
		return cached(e, "one", func() (int, error) { calls++; return 1, nil })
	}
	sum, err := cached(&e, "sum", func() (int, error) { // a value that needs another
		a, err := one(&e)
		return a + 1, err
	})
	if again, _ := one(e.ForEntry(nil)); err != nil || sum != 2 || again != 1 || calls != 1 {
		t.Errorf("sum %d, one %d, %d calls, %v", sum, again, calls, err)
	}
}

func TestCachedFailureIsTriedAgain(t *testing.T) {
	var e Env
	broken := errors.New("broken")
	if _, err := cached(&e, "x", func() (int, error) { return 0, broken }); !errors.Is(err, broken) {
		t.Errorf("error %v", err)
	}
	if x, err := cached(&e, "x", func() (int, error) { return 7, nil }); x != 7 || err != nil {
		t.Errorf("%d, %v", x, err)
	}
}

func TestDifferentValuesAreComputedInParallel(t *testing.T) {
	var e Env
	inside := make(chan struct{})
	done := make(chan error)
	go func() {
		_, err := cached(&e, "a", func() (int, error) { inside <- struct{}{}; return 1, nil })
		done <- err
	}()
	// This computation ends only while the other one runs.
	if _, err := cached(&e, "b", func() (int, error) { <-inside; return 2, nil }); err != nil {
		t.Error(err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}
