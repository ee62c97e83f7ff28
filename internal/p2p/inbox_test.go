package p2p_test

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/allcast/allcast/internal/p2p"
)

// inboxTest is an Inbox and the pieces that its plan expects.
type inboxTest struct {
	*testing.T
	*p2p.Inbox
	plan *p2p.Plan
	nth  []uint32 // by receive
}

func newInboxTest(t *testing.T, c call, rank int) *inboxTest {
	t.Helper()
	p := c.plan(t, rank)
	return &inboxTest{t, p2p.NewInbox(p), p, numbers(p)}
}

// take claims the piece of receive i.
func (b *inboxTest) take(i int, wantHold bool) {
	b.Helper()
	want := &b.plan.Recvs[i]
	got, r, hold, ok := b.Take(int(want.From), b.nth[i], want.Len)
	if !ok || got != i || r != want || b.Recv(i) != want || hold != wantHold {
		b.Fatalf("receive %d: taken %v as %d, %+v, held %v; want held %v", i, ok, got, r, hold, wantHold)
	}
}

// refuse offers the piece of receive i, with any length.
func (b *inboxTest) refuse(why string, i int, length int64) {
	b.Helper()
	before := b.Foreign()
	_, r, hold, ok := b.Take(int(b.plan.Recvs[i].From), b.nth[i], length)
	if ok || r != nil || hold || b.Foreign() != before+1 {
		b.Errorf("%s: receive %d is taken: %v, %+v; %d foreign pieces, want %d", why, i, ok, r, b.Foreign(), before+1)
	}
}

// progress checks how far the Inbox is, and which receive it names next.
func (b *inboxTest) progress(wantPrefix, wantLeft, wantNext int) {
	b.Helper()
	prefix, left := b.Progress()
	if next := b.Next(); prefix != wantPrefix || left != wantLeft || next != wantNext {
		b.Fatalf("%d receives are complete, %d are not, %d is next; want %d, %d, %d",
			prefix, left, next, wantPrefix, wantLeft, wantNext)
	}
}

// A piece that is to be added waits until all before it were added, and nobody but the first caller of
// Next gets it.
func TestInboxAddsInOrder(t *testing.T) {
	b := newInboxTest(t, call{"ring", p2p.Spec{Kind: p2p.ReduceScatter, Size: 5}}.sized(8), 2)
	b.progress(0, 4, -1)
	b.take(3, true)
	b.Arrived(3)
	b.take(1, true)
	b.progress(0, 4, -1)
	b.take(0, false)
	b.progress(0, 4, -1) // it is taken, and not yet added
	b.Arrived(0)
	b.progress(1, 3, -1) // the second is still arriving
	b.Arrived(1)
	b.progress(1, 3, 1)
	b.progress(1, 3, -1) // the caller of Next has it
	b.Arrived(1)
	b.progress(2, 2, -1)
	b.take(2, false) // it is its turn
	b.Arrived(2)
	b.progress(3, 1, 3)
	b.Arrived(3)
	b.progress(4, 0, -1)
	if b.Foreign() != 0 {
		t.Errorf("%d foreign pieces", b.Foreign())
	}
}

// A piece comes once, whatever has become of it, and only with its own length. What is refused changes
// nothing.
func TestInboxRefuses(t *testing.T) {
	b := newInboxTest(t, call{"ring", p2p.Spec{Kind: p2p.ReduceScatter, Size: 4}}.sized(8), 1)
	n := b.plan.Recvs[1].Len
	for _, length := range []int64{0, n - 1, n + 1, -n, 1 << 40} {
		b.refuse("another length", 1, length)
	}
	b.take(1, true)
	b.refuse("it is kept", 1, n)
	b.Arrived(1)
	b.refuse("it is held", 1, n)
	b.take(0, false)
	b.refuse("it is taken", 0, b.plan.Recvs[0].Len)
	b.Arrived(0)
	b.refuse("it is done", 0, b.plan.Recvs[0].Len)
	b.progress(1, 2, 1)
	b.refuse("it is taken again", 1, n)
	b.Arrived(1)
	b.take(2, false)
	b.Arrived(2)
	b.progress(3, 0, -1)
	for i, r := range b.plan.Recvs {
		b.refuse("all is done", i, r.Len)
	}
	for _, from := range []int{-1, 1, 3, 4, 1 << 32} { // only rank 0 sends to rank 1
		if _, _, _, ok := b.Take(from, 0, n); ok {
			t.Errorf("a piece of rank %d is taken", from)
		}
	}
	if _, _, _, ok := b.Take(0, 3, n); ok {
		t.Error("a fourth piece is taken")
	}
	if want := uint64(5 + 2 + 2 + 1 + 3 + 5 + 1); b.Foreign() != want {
		t.Errorf("%d foreign pieces, want %d", b.Foreign(), want)
	}
}

// Pieces that are only placed wait for nobody, neither alone nor after those that are added.
func TestInboxPlacesAtOnce(t *testing.T) {
	b := newInboxTest(t, call{"ring", p2p.Spec{Kind: p2p.Allgather, Size: 4}}.sized(8), 3)
	for k, i := range []int{2, 0, 1} {
		b.take(i, false)
		b.Arrived(i)
		b.progress([]int{0, 1, 3}[k], 2-k, -1)
	}
	b = newInboxTest(t, call{"ring", p2p.Spec{Kind: p2p.Allreduce, Size: 3}}.sized(9), 0)
	b.take(3, false) // the last of the Allgather that follows
	b.Arrived(3)
	b.take(1, true)
	b.Arrived(1)
	b.take(2, false)
	b.Arrived(2)
	b.progress(0, 2, -1)
	b.take(0, false)
	b.Arrived(0)
	b.progress(1, 1, 1)
	b.Arrived(1)
	b.progress(4, 0, -1)
}

// Empty pieces are pieces: they count, and one that is not empty is not taken for one that is.
func TestInboxEmptyPieces(t *testing.T) {
	counts := []int64{0, 5, 0, 3}
	for _, kind := range []p2p.Kind{p2p.Allgather, p2p.ReduceScatter} {
		b := newInboxTest(t, call{"ring", p2p.Spec{Kind: kind, Size: 4, Counts: counts}}, 0)
		empty := 0
		for i, r := range b.plan.Recvs {
			if r.Len == 0 {
				empty++
				b.refuse("it is empty", i, 1)
			} else {
				b.refuse("it is not empty", i, 0)
			}
			b.take(i, false)
			b.Arrived(i)
			b.progress(i+1, len(b.plan.Recvs)-i-1, -1)
		}
		if empty == 0 {
			t.Errorf("%v: no piece is empty", kind)
		}
	}
	b := newInboxTest(t, call{"dissemination", p2p.Spec{Kind: p2p.Barrier, Size: 5}}, 1)
	for i := range b.plan.Recvs {
		b.take(i, false)
		b.Arrived(i)
	}
	b.progress(len(b.plan.Recvs), 0, -1)
}

// A rank without receives is done.
func TestInboxOfNothing(t *testing.T) {
	b := newInboxTest(t, call{"binomial", p2p.Spec{Kind: p2p.Broadcast, Size: 4, Root: 2}}.sized(8), 2)
	b.progress(0, 0, -1)
	if _, _, _, ok := b.Take(1, 0, 0); ok || b.Foreign() != 1 {
		t.Errorf("taken %v, %d foreign", ok, b.Foreign())
	}
}

// Whatever the order in which pieces begin and end, each is placed or added once, those that are added
// in the plan's order, and Progress says so.
func TestInboxInAnyOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := drawCall(t, 12)
		plan := planOf(t, c, rapid.IntRange(0, c.Size-1).Draw(t, "rank"))
		in, nth := p2p.NewInbox(plan), numbers(plan)
		var waiting, moving, keeping []int // receives that have not come; are placed or added; are kept
		for i := range plan.Recvs {
			waiting = append(waiting, i)
		}
		done := make([]bool, len(plan.Recvs))
		pick := func(from *[]int, what string) int {
			k := rapid.IntRange(0, len(*from)-1).Draw(t, what)
			i := (*from)[k]
			*from = append((*from)[:k], (*from)[k+1:]...)
			return i
		}
		begin := func(i int) {
			for j := range i {
				if plan.Recvs[i].Reduce && !done[j] {
					t.Fatalf("receive %d is added before %d", i, j)
				}
			}
			moving = append(moving, i)
		}
		for len(waiting)+len(moving)+len(keeping) > 0 {
			switch rapid.IntRange(0, 2).Draw(t, "what") {
			case 0:
				if len(waiting) > 0 {
					i := pick(&waiting, "piece")
					r := &plan.Recvs[i]
					got, _, hold, ok := in.Take(int(r.From), nth[i], r.Len)
					if !ok || got != i || hold && !r.Reduce {
						t.Fatalf("receive %d: taken %v as %d, held %v", i, ok, got, hold)
					}
					if hold {
						keeping = append(keeping, i)
					} else {
						begin(i)
					}
				}
			case 1:
				if len(keeping) > 0 {
					in.Arrived(pick(&keeping, "kept"))
				}
			case 2:
				if len(moving) > 0 {
					i := pick(&moving, "placed")
					in.Arrived(i)
					done[i] = true
				}
			}
			for i := in.Next(); i >= 0; i = in.Next() {
				begin(i)
			}
			if msg := wrongProgress(in, done); msg != "" {
				t.Fatal(msg)
			}
		}
		if _, left := in.Progress(); left != 0 || in.Foreign() != 0 {
			t.Fatalf("%d receives are left, %d pieces were foreign", left, in.Foreign())
		}
	})
}

// wrongProgress compares what an Inbox says with the receives that are done.
func wrongProgress(in *p2p.Inbox, done []bool) string {
	wantPrefix, wantLeft := 0, 0
	for wantPrefix < len(done) && done[wantPrefix] {
		wantPrefix++
	}
	for _, d := range done {
		if !d {
			wantLeft++
		}
	}
	if prefix, left := in.Progress(); prefix != wantPrefix || left != wantLeft {
		return fmt.Sprintf("%d receives are complete, %d are not; want %d and %d", prefix, left, wantPrefix, wantLeft)
	}
	return ""
}
