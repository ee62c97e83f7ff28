package rendezvous

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// crash ends a rank's connections as its kernel would, without a last word.
func crash(j joined) {
	h, isRoot := j.node.(*hub)
	if !isRoot {
		b := j.node.(*branch)
		h = b.hub
		defer func() {
			_ = b.up.conn.Close()
			_ = b.from.conn.Close()
		}()
		b.up.out.mu.Lock()
		defer b.up.out.mu.Unlock()
		b.up.out.cut = errors.New("crashed")
	}
	for _, p := range h.children() {
		_ = p.conn.Close()
	}
}

func TestRankDiesInExchange(t *testing.T) {
	w := newWorld(t, 8)
	js := w.all()
	if errs := exchange(t.Context(), js); slices.ContainsFunc(errs, func(err error) bool { return err != nil }) {
		t.Fatal(errs)
	}
	crash(js[5])
	others := slices.Delete(slices.Clone(js), 5, 6)
	for range 2 { // a broken session stays broken
		for i, err := range exchange(t.Context(), others) {
			if !blames(err, ErrLost, 5) ||
				!strings.Contains(err.Error(), "rank 5 at 127.0.0.1:") {
				t.Errorf("survivor %d: %v", i, err)
			}
		}
	}
}

// A rank that gave its blob can die too.
func TestRankDiesAfterItsBlob(t *testing.T) {
	w := newWorld(t, 4)
	js := w.all()
	if err := js[2].node.(*branch).up.send(t.Context(), blobFrame(1, nil)); err != nil {
		t.Fatal(err)
	}
	crash(js[2])
	// Rank 3 does not call, so that there is an exchange to die in.
	for i, err := range exchange(t.Context(), js[:2]) {
		if !blames(err, ErrLost, 2) {
			t.Errorf("rank %d: %v", i, err)
		}
	}
}

func TestRootDies(t *testing.T) {
	w := newWorld(t, 3)
	js := w.all()
	crash(js[0])
	for i, err := range exchange(t.Context(), js[1:]) {
		if !blames(err, ErrLost, 0) {
			t.Errorf("rank %d: %v", i+1, err)
		}
	}
}

func TestClose(t *testing.T) {
	t.Run("rank", func(t *testing.T) {
		js := newWorld(t, 3).all()
		_ = js[1].Close()
		_ = js[1].Close()
		if _, err := js[1].Exchange(t.Context(), nil); !errors.Is(err, ErrClosed) {
			t.Error(err)
		}
		for _, err := range exchange(t.Context(), []joined{js[0], js[2]}) {
			if !blames(err, ErrLost, 1) || !strings.Contains(err.Error(), "closed its session") {
				t.Error(err)
			}
		}
	})
	t.Run("root", func(t *testing.T) {
		js := newWorld(t, 3).all()
		_ = js[0].Close()
		for _, err := range exchange(t.Context(), js[1:]) {
			if !blames(err, ErrLost, 0) || !strings.Contains(err.Error(), "closed its session") {
				t.Error(err)
			}
		}
	})
	for _, rank := range []int{0, 1} {
		t.Run("in exchange", func(t *testing.T) {
			js := newWorld(t, 3).all()
			got := make(chan error, 1)
			go func() {
				_, err := js[rank].Exchange(t.Context(), nil)
				got <- err
			}()
			_ = js[rank].Close()
			if err := <-got; !errors.Is(err, ErrClosed) {
				t.Error(err)
			}
		})
	}
}

// ending is a context whose deadline passes when the test says so.
type ending struct {
	context.Context
	done chan struct{}
}

func (e ending) Done() <-chan struct{} { return e.done }

func (e ending) Err() error {
	select {
	case <-e.done:
		return context.DeadlineExceeded
	default:
		return nil
	}
}

// If the context of a rank ends while rank 2 is late, the error blames only rank 2.
func TestLateRank(t *testing.T) {
	for _, impatient := range []int{0, 1} {
		js := newWorld(t, 4).all()
		h := js[0].node.(*hub)
		ctx := ending{t.Context(), make(chan struct{})}
		type result struct {
			rank int
			err  error
		}
		results := make(chan result, 3)
		start := func(rank int) {
			var c context.Context = ctx
			if rank != impatient {
				c = t.Context()
			}
			go func() {
				_, err := js[rank].Exchange(c, nil)
				results <- result{rank, err}
			}()
		}
		arrived := func(n int) {
			for len(h.events) < n {
				runtime.Gosched()
			}
		}
		start(3)
		arrived(1)
		start(1)
		arrived(2)
		close(ctx.done)
		if impatient == 1 {
			arrived(3) // its leave
		}
		start(0)
		for range 3 {
			r := <-results
			if r.rank == impatient && !errors.Is(r.err, context.DeadlineExceeded) {
				t.Errorf("impatient rank %d: %v", r.rank, r.err)
			}
			if r.rank == 1 && impatient == 1 {
				continue
			}
			if !blames(r.err, ErrTimeout, 2) {
				t.Errorf("rank %d: %v", r.rank, r.err)
			}
		}
	}
}

func TestCancelExchange(t *testing.T) {
	for _, culprit := range []int{0, 1} {
		js := newWorld(t, 3).all()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := js[culprit].Exchange(ctx, nil); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		for rank, j := range js {
			if rank == culprit {
				continue
			}
			_, err := j.Exchange(t.Context(), nil)
			if !blames(err, ErrLost, culprit) {
				t.Errorf("rank %d: %v", rank, err)
			}
		}
	}
}

func TestBlobTooLong(t *testing.T) {
	js := newWorld(t, 1).all()
	if _, err := js[0].Exchange(t.Context(), make([]byte, MaxBlob+1)); err == nil {
		t.Error("no error")
	}
	if _, err := js[0].Exchange(t.Context(), make([]byte, MaxBlob)); err != nil {
		t.Error("the session does not survive it:", err)
	}
}
