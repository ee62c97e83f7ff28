package inc

import (
	"errors"
	"math"
	"reflect"
	"slices"
	"testing"

	"github.com/allcast/allcast/internal/step"
	"github.com/allcast/allcast/internal/wire"
)

const (
	soloChunk = 8
	soloAlpha = step.Millisecond
)

// A solo is an Op whose events come from the test.
type solo struct {
	*Op
	t   *testing.T
	now step.Time
}

// newSolo returns an Op of a reduction with n chunks per rank.
func newSolo(t *testing.T, rank, size int, n int64, window uint32) *solo {
	t.Helper()
	return soloOf(t, &Reduction{
		Rank: rank, Size: size, Kind: wire.ReduceScatter, Counts: equalCounts(size, soloChunk*n), Chunk: soloChunk,
	}, window)
}

func soloOf(t *testing.T, r *Reduction, window uint32) *solo {
	t.Helper()
	if err := r.Check(); err != nil {
		t.Fatal(err)
	}
	op := New(Config{
		Reduction: r, Comm: 3, Seq: 5, Window: window, Batch: 4, Alpha: func() step.Time { return soloAlpha },
		Limits: Limits{Tries: 3, Silent: 100 * step.Millisecond},
	})
	return &solo{Op: op, t: t, now: step.Second}
}

// begun returns an Op that has passed the barrier.
func begun(t *testing.T, rank, size int, n int64, window uint32) (*solo, []step.Action) {
	t.Helper()
	s := newSolo(t, rank, size, n, window)
	acts := s.do(step.Event{Kind: step.EvStart})
	for _, c := range s.children {
		acts = append(acts, s.hear(c, wire.Msg{Kind: wire.MsgReady, Digest: s.digest, Grant: uint64(window)})...)
	}
	if s.parent >= 0 {
		acts = append(acts, s.hear(s.parent, wire.Msg{Kind: wire.MsgIncGo, Grant: uint64(window)})...)
	}
	if !s.running() {
		t.Fatalf("in phase %v after the barrier", s.Phase())
	}
	return s, acts
}

func (s *solo) do(ev step.Event) []step.Action { return s.checked(s.Step(s.now, ev, nil)) }

func (s *solo) hear(from int, m wire.Msg) []step.Action {
	return s.do(step.Event{Kind: step.EvMsg, From: from, Msg: &m})
}

// sums places chunks by datagrams.
func (s *solo) sums(nths ...uint32) []step.Action {
	s.t.Helper()
	for _, nth := range nths {
		if !s.Record().Take(nth) {
			s.t.Fatalf("chunk %d is taken", nth)
		}
		s.Record().Finish(nth, 1)
	}
	return s.checked(s.Summed(s.now, nil))
}

// fetched ends a fetch.
func (s *solo) fetched(a step.Action) []step.Action {
	s.Record().Claim(a.PSN, a.N, func(i, n uint32) { s.Record().Finish(i, n) })
	return s.do(step.Event{Kind: step.EvFetched, Ranges: []wire.Range{{PSN: a.PSN, N: a.N}}})
}

// sent reports that everything in flight was sent, until nothing is.
func (s *solo) sent() (acts []step.Action) {
	for s.send.inFlight > 0 {
		acts = append(acts, s.do(step.Event{Kind: step.EvSent, N: s.send.inFlight})...)
	}
	return acts
}

// wait lets the timers fire for a time.
func (s *solo) wait(d step.Time) (acts []step.Action) {
	s.t.Helper()
	end := s.now + d
	for fired := 0; s.Timer() <= end; fired++ {
		if fired > 1000 {
			s.t.Fatalf("%d timers within %d us", fired, d/step.Microsecond)
		}
		s.now = s.Timer()
		acts = append(acts, s.do(step.Event{Kind: step.EvTimer})...)
	}
	s.now = end
	return acts
}

func (s *solo) checked(acts []step.Action) []step.Action {
	s.t.Helper()
	if s.Timer() <= s.now {
		s.t.Fatalf("timer at %d, now %d", s.Timer(), s.now)
	}
	return acts
}

// only returns the actions of a kind.
func only(acts []step.Action, kind step.ActionKind) (some []step.Action) {
	for _, a := range acts {
		if a.Kind == kind {
			some = append(some, a)
		}
	}
	return some
}

// messages returns the messages of a kind.
func messages(acts []step.Action, kind wire.MsgKind) (some []step.Action) {
	for _, a := range only(acts, step.ActSend) {
		if a.Msg.Kind == kind {
			some = append(some, a)
		}
	}
	return some
}

// places returns the places that the actions send, with their tries.
func places(acts []step.Action) (all [][2]uint32) {
	for _, a := range only(acts, step.ActReduce) {
		for p := a.PSN; p < a.PSN+a.N; p++ {
			all = append(all, [2]uint32{p, uint32(a.Try)})
		}
	}
	return all
}

func TestReductionCheck(t *testing.T) {
	good := Reduction{Rank: 1, Size: 3, Kind: wire.Allreduce, Counts: []int64{8, 0, 24}, Chunk: 16}
	if err := good.Check(); err != nil {
		t.Fatal(err)
	}
	if c := good.Call(); c.Kind != wire.Allreduce || c.Bytes != 32 || c.Algo.String() != "inc" {
		t.Errorf("%+v", c)
	}
	for name, change := range map[string]func(r *Reduction){
		"kind":            func(r *Reduction) { r.Kind = wire.Allgather },
		"rank":            func(r *Reduction) { r.Rank = 3 },
		"negative rank":   func(r *Reduction) { r.Rank = -1 },
		"size":            func(r *Reduction) { r.Size = 0 },
		"too many ranks":  func(r *Reduction) { r.Size, r.Counts = 1<<16, make([]int64, 1<<16) },
		"chunk":           func(r *Reduction) { r.Chunk = 0 },
		"odd chunk":       func(r *Reduction) { r.Chunk = 12 },
		"counts":          func(r *Reduction) { r.Counts = r.Counts[:2] },
		"negative count":  func(r *Reduction) { r.Counts = []int64{8, -8, 8} },
		"overflow":        func(r *Reduction) { r.Counts = []int64{math.MaxInt64 - 100, 0, 200} },
		"too many chunks": func(r *Reduction) { r.Counts = []int64{16 << 30, 16 << 30, 0} },
	} {
		r := good
		if change(&r); !errors.Is(r.Check(), ErrReduction) {
			t.Errorf("%s: %v", name, r.Check())
		}
	}
	// Every parameter of the call counts, but not the rank.
	base := good.digest()
	for name, change := range map[string]func(r *Reduction){
		"kind":   func(r *Reduction) { r.Kind = wire.ReduceScatter },
		"counts": func(r *Reduction) { r.Counts = []int64{8, 8, 16} },
		"chunk":  func(r *Reduction) { r.Chunk = 32 },
		"type":   func(r *Reduction) { r.Type = 7 },
		"tree":   func(r *Reduction) { r.Tree = 1 },
	} {
		r := good
		if change(&r); r.digest() == base {
			t.Errorf("%s does not change the digest", name)
		}
	}
	if r := good; r.digest() != base {
		t.Error("the digest is not a function of the call")
	} else if r.Rank = 0; r.digest() != base {
		t.Error("the digest depends on the rank")
	}
}

// The barrier collects windows up the control tree and announces the smallest one. All must be ready.
func TestOpBarrier(t *testing.T) {
	for _, c := range []struct{ own, child, other, want uint32 }{{8, 9, 7, 7}, {5, 9, 7, 5}, {8, 0, 9, 0}, {0, 8, 8, 0}} {
		s := newSolo(t, 0, 4, 4, c.own) // children 1 and 2
		if acts := s.hear(1, wire.Msg{Kind: wire.MsgReady, Digest: s.digest, Grant: uint64(c.child)}); len(acts) > 0 {
			t.Fatalf("acts before it starts: %+v", acts)
		}
		greets := s.do(step.Event{Kind: step.EvStart})
		if len(greets) != 2 || len(messages(greets, wire.MsgReady)) != 2 || greets[0].To != 1 || greets[1].To != 2 {
			t.Fatalf("does not greet its children: %+v", greets)
		}
		acts := s.hear(1, wire.Msg{Kind: wire.MsgReady, Digest: s.digest, Grant: 1})                 // a repetition
		acts = append(acts, s.hear(3, wire.Msg{Kind: wire.MsgReady, Digest: s.digest, Grant: 1})...) // no child
		if len(acts) > 0 || s.WaitingOn() != 2 || s.Phase() != step.Barrier || s.Aggregated() {
			t.Fatalf("does not wait for rank 2: %+v", acts)
		}
		acts = s.hear(2, wire.Msg{Kind: wire.MsgReady, Digest: s.digest, Grant: uint64(c.other)})
		gos := messages(acts, wire.MsgIncGo)
		if len(gos) != 3 || gos[0].To != 1 || gos[2].To != 3 || gos[0].Msg.Grant != uint64(c.want) {
			t.Fatalf("%+v: announces %+v", c, gos)
		}
		if s.Aggregated() != (c.want > 0) || s.FellBack() != (c.want == 0) || s.Noticed() != -1 {
			t.Fatalf("%+v: aggregated %v, fell back %v", c, s.Aggregated(), s.FellBack())
		}
		if n := len(only(acts, step.ActFetch)); (n > 0) != (c.want == 0) || (len(places(acts)) > 0) != (c.want > 0) {
			t.Fatalf("%+v: %+v", c, acts)
		}
	}
	s := newSolo(t, 2, 4, 4, 8) // below 0, above 3
	s.do(step.Event{Kind: step.EvStart})
	acts := s.hear(3, wire.Msg{Kind: wire.MsgReady, Digest: s.digest, Grant: 6})
	want := wire.Msg{Kind: wire.MsgReady, Comm: 3, Seq: 5, Digest: s.digest, Call: s.red.Call(), Grant: 6}
	if len(acts) != 1 || acts[0].To != 0 || !reflect.DeepEqual(acts[0].Msg, want) {
		t.Fatalf("reports %+v", acts)
	}
	if s.WaitingOn() != 0 {
		t.Errorf("waits for rank %d", s.WaitingOn())
	}
	// The greeting of its parent says nothing new.
	if acts = s.hear(0, wire.Msg{Kind: wire.MsgReady, Digest: s.digest}); len(acts) > 0 || len(s.early) > 0 {
		t.Fatalf("answers the greeting of its parent: %+v", acts)
	}
	// Its child began earlier.
	acts = s.hear(3, wire.Msg{Kind: wire.MsgIncAsk, Rank: 3, Round: 1, Ranges: []wire.Range{{PSN: 0, N: 1}}})
	if m := messages(acts, wire.MsgIncAsk); len(acts) != 1 || len(m) != 1 || m[0].To != 0 {
		t.Fatalf("does not pass a request on: %+v", acts)
	}
	acts = s.hear(3, wire.Msg{Kind: wire.MsgSentUp})
	if len(acts) > 0 || s.finished[0] {
		t.Fatalf("acts before it begins: %+v", acts)
	}
	acts = s.hear(0, wire.Msg{Kind: wire.MsgIncGo, Grant: 5})
	if !s.finished[0] || s.credit.all != 5 {
		t.Fatalf("begins with %+v", acts)
	}
	if m := messages(acts, wire.MsgIncGo); len(m) != 0 {
		t.Fatalf("passes on %+v", m)
	}
	// With many ranks, the top does not tell each of them.
	s = newSolo(t, 2, maxDirect+1, 4, 8)
	s.do(step.Event{Kind: step.EvStart})
	for _, child := range s.children {
		s.hear(child, wire.Msg{Kind: wire.MsgReady, Digest: s.digest, Grant: 6})
	}
	acts = s.hear(0, wire.Msg{Kind: wire.MsgIncGo, Grant: 5})
	if m := messages(acts, wire.MsgIncGo); len(m) != len(s.children) || m[0].To != s.children[0] || m[0].Msg.Grant != 5 {
		t.Fatalf("passes on %+v", acts)
	}
}

func TestOpMismatch(t *testing.T) {
	s := newSolo(t, 1, 2, 4, 8)
	bad := wire.Msg{Kind: wire.MsgReady, Digest: s.digest + 1, Call: wire.Call{Kind: wire.Barrier}}
	wants := func(phase string, want bool) {
		t.Helper()
		acts := s.hear(0, bad)
		got := len(acts) == 1 && acts[0].Kind == step.ActMismatch && acts[0].To == 0
		if got != want || got && !reflect.DeepEqual(acts[0].Msg, bad) {
			t.Errorf("%s: %+v", phase, acts)
		}
	}
	wants("queued", true)
	s.do(step.Event{Kind: step.EvStart})
	wants("barrier", true)
	s.hear(0, wire.Msg{Kind: wire.MsgIncGo, Grant: 8})
	wants("transfer", true)
	s.sums(0, 1, 2, 3)
	s.sent()
	s.hear(0, wire.Msg{Kind: wire.MsgAllSent})
	if s.Phase() != step.Closed {
		t.Fatal(s.Phase())
	}
	wants("closed", true)
	s = newSolo(t, 1, 2, 4, 8)
	s.Fail()
	wants("failed", false)
	if s.Phase() != step.Failed || s.Timer() != step.Never {
		t.Error(s.Phase(), s.Timer())
	}
}

// A rank sends in order, within the credit and with few batches in flight, and leaves out its own block.
func TestOpSendsInOrder(t *testing.T) {
	s, acts := begun(t, 1, 3, 20, 30) // leaf; places of rank 1 are 1, 4, 7...
	var sent []uint32
	for s.send.inFlight > 0 {
		for _, a := range only(acts, step.ActReduce) {
			if a.N > 4 || a.Try != 0 {
				t.Fatalf("a batch of %d, try %d", a.N, a.Try)
			}
			for p := a.PSN; p < a.PSN+a.N; p++ {
				sent = append(sent, p)
			}
		}
		if s.send.inFlight > 8 {
			t.Fatalf("%d places in flight", s.send.inFlight)
		}
		acts = s.do(step.Event{Kind: step.EvSent, N: 1})
	}
	once := len(slices.Compact(slices.Clone(sent))) == len(sent)
	if len(sent) == 0 || !slices.IsSorted(sent) || sent[len(sent)-1] >= 30 || !once {
		t.Fatalf("sent %v with credit for 30", sent)
	}
	for p := range uint32(30) {
		if !slices.Contains(sent, p) && p%3 != 1 {
			t.Errorf("did not send place %d", p)
		}
	}
	acts = s.hear(0, wire.Msg{Kind: wire.MsgGrant, Grant: 33})
	for _, p := range places(append(acts, s.sent()...)) {
		if p[0] < 30 || p[0] >= 33 {
			t.Errorf("sent place %d with credit for 33", p[0])
		}
	}
	if acts := s.hear(0, wire.Msg{Kind: wire.MsgGrant, Grant: 31}); len(acts) > 0 {
		t.Errorf("credit shrinks: %+v", acts)
	}
	if acts := s.hear(2, wire.Msg{Kind: wire.MsgGrant, Grant: 60}); len(acts) > 0 {
		t.Errorf("credit from a rank that is not the parent: %+v", acts)
	}
}

// Blocks of the own rank at the end of the order cost no action.
func TestOpSkipsOwnTail(t *testing.T) {
	r := &Reduction{Rank: 1, Size: 2, Kind: wire.ReduceScatter, Counts: []int64{8, 8000}, Chunk: 8}
	s := soloOf(t, r, 5000)
	s.do(step.Event{Kind: step.EvStart})
	acts := s.hear(0, wire.Msg{Kind: wire.MsgIncGo, Grant: 5000})
	acts = append(acts, s.sent()...)
	if n := len(only(acts, step.ActReduce)); n != 1 || s.send.next != 1001 {
		t.Errorf("%d actions, next place %d", n, s.send.next)
	}
}

// Grants go up as the smallest of the subtree, and down from the top. Small increases wait.
func TestOpGrants(t *testing.T) {
	s, acts := begun(t, 2, 4, 100, 64) // child 3
	if len(messages(acts, wire.MsgGrantUp)) > 0 {
		t.Fatal("grants what all ranks know")
	}
	acts = s.hear(3, wire.Msg{Kind: wire.MsgGrantUp, Grant: 90})
	acts = append(acts, s.sums(0)...) // the next one is place 6: 70
	if m := messages(acts, wire.MsgGrantUp); len(m) > 0 {
		t.Fatalf("a small increase: %+v", m)
	}
	acts = s.sums(1) // 10
	if m := messages(acts, wire.MsgGrantUp); len(m) != 1 || m[0].To != 0 || m[0].Msg.Grant != 74 {
		t.Fatalf("grants %+v", m)
	}
	acts = s.sums(2, 3, 4, 5, 6, 7, 8) // beyond the child's
	if m := messages(acts, wire.MsgGrantUp); len(m) != 1 || m[0].Msg.Grant != 90 {
		t.Fatalf("grants %+v", m)
	}
	if m := messages(s.sums(10), wire.MsgGrantUp); len(m) > 0 {
		t.Fatalf("grants beyond a missing chunk: %+v", m)
	}
	acts = s.hear(0, wire.Msg{Kind: wire.MsgGrant, Grant: 80})
	if m := messages(acts, wire.MsgGrant); len(m) != 1 || m[0].To != 3 || m[0].Msg.Grant != 80 {
		t.Fatalf("passes on %+v", m)
	}
	top, _ := begun(t, 0, 2, 100, 64)
	top.hear(1, wire.Msg{Kind: wire.MsgGrantUp, Grant: 1 << 40})
	acts = top.sums(0, 1, 2, 3)
	if m := messages(acts, wire.MsgGrant); len(m) != 1 || m[0].Msg.Grant != 72 || top.credit.all != 72 {
		t.Fatalf("grants %+v", m)
	}
	if top.hear(1, wire.Msg{Kind: wire.MsgGrantUp, Grant: 1}); top.credit.child[0] != 200 {
		t.Errorf("a grant shrinks to %d", top.credit.child[0])
	}
}

func TestOpWaitingOnAndMissing(t *testing.T) {
	s, _ := begun(t, 2, 4, 40, 16)
	if got := s.Missing(nil); got != "40 of 40 chunks of the sum: 0-39" || s.WaitingOn() != 2 {
		t.Errorf("%s, waits for %d", got, s.WaitingOn())
	}
	s.sums(0, 1, 3)
	if got := s.Missing(nil); got != "37 of 40 chunks of the sum: 2-2, 4-39" || s.WaitingOn() != 2 {
		t.Errorf("%s, waits for %d", got, s.WaitingOn())
	}
	s.sums(2)
	if s.WaitingOn() != 3 { // needs credit
		t.Errorf("waits for %d", s.WaitingOn())
	}
	if s.hear(3, wire.Msg{Kind: wire.MsgGrantUp, Grant: 32}); s.WaitingOn() != 0 {
		t.Errorf("waits for %d", s.WaitingOn())
	}
	for nth := uint32(4); nth < 40; nth += 2 {
		s.Record().Take(nth)
		s.Record().Finish(nth, 1)
	}
	want := "18 of 40 chunks of the sum: 5-5, 7-7, 9-9, 11-11, 13-13, 15-15, 17-17, 19-19, and 10 more ranges"
	if got := s.Missing(nil); got != want {
		t.Error(got)
	}
	for nth := uint32(5); nth < 40; nth += 2 {
		s.Record().Take(nth)
		s.Record().Finish(nth, 1)
	}
	s.Summed(s.now, nil)
	if got := s.Missing(nil); got != "nothing" || s.Phase() != step.Handshake || s.WaitingOn() != 3 {
		t.Errorf("%s, %v, waits for %d", got, s.Phase(), s.WaitingOn())
	}
	if s.hear(3, wire.Msg{Kind: wire.MsgSentUp}); s.WaitingOn() != 0 {
		t.Errorf("waits for %d", s.WaitingOn())
	}
}

// The handshake goes up when the subtree has everything, and down from the top. A rank completes when its driver
// uses no buffer any more.
func TestOpHandshake(t *testing.T) {
	s, _ := begun(t, 2, 4, 2, 16)
	if acts := s.hear(0, wire.Msg{Kind: wire.MsgAllSent}); len(acts) > 0 {
		t.Fatalf("all have everything, although this rank does not: %+v", acts)
	}
	if acts := s.sums(0, 1); len(messages(acts, wire.MsgSentUp)) > 0 || s.Phase() != step.Handshake {
		t.Fatalf("reports before its child: %+v", acts)
	}
	if acts := s.hear(3, wire.Msg{Kind: wire.MsgSentUp}); len(messages(acts, wire.MsgSentUp)) != 1 {
		t.Fatalf("does not report: %+v", acts)
	}
	if s.send.inFlight == 0 {
		t.Fatal("nothing in flight")
	}
	acts := s.hear(0, wire.Msg{Kind: wire.MsgAllSent})
	if m := messages(acts, wire.MsgAllSent); len(m) != 1 || m[0].To != 3 || len(only(acts, step.ActComplete)) > 0 {
		t.Fatalf("passes on %+v", acts)
	}
	s.now++
	acts = s.do(step.Event{Kind: step.EvSent, N: s.send.inFlight})
	if !slices.Equal(kinds(acts), []step.ActionKind{step.ActComplete, step.ActClosed}) || s.Phase() != step.Closed {
		t.Fatalf("completes with %+v", acts)
	}
	if times := s.Times(); times.Done != s.now || times.Have != s.now-1 || times.Start == 0 || times.Barrier == 0 {
		t.Errorf("%+v", times)
	}
	if acts := s.hear(0, wire.Msg{Kind: wire.MsgIncDown}); len(acts) > 0 {
		t.Errorf("acts after the end: %+v", acts)
	}
}

// When all ranks have everything, a rank sends nothing more, even if it was late.
func TestOpStopsSending(t *testing.T) {
	s, _ := begun(t, 1, 2, 40, 100)
	for nth := range uint32(40) {
		s.sums(nth)
	}
	if acts := s.hear(0, wire.Msg{Kind: wire.MsgAllSent}); len(acts) > 0 || s.send.next == 80 {
		t.Fatalf("%+v, next place %d", acts, s.send.next)
	}
	if acts := s.do(step.Event{Kind: step.EvSent, N: s.send.inFlight}); len(places(acts)) > 0 || s.Phase() != step.Closed {
		t.Errorf("sends %v, %v", places(acts), s.Phase())
	}
}

func kinds(acts []step.Action) (k []step.ActionKind) {
	for _, a := range acts {
		k = append(k, a.Kind)
	}
	return k
}

// Reductions without data, and of one rank, need no sums.
func TestOpTrivial(t *testing.T) {
	s := newSolo(t, 0, 1, 5, 0)
	if acts := s.do(step.Event{Kind: step.EvStart}); len(acts) != 2 || s.Phase() != step.Closed || s.FellBack() {
		t.Errorf("one rank: %+v", acts)
	}
	for _, window := range []uint32{0, 8} {
		s, _ = begun(t, 1, 2, 0, window)
		if acts := s.hear(0, wire.Msg{Kind: wire.MsgAllSent}); len(acts) != 2 || s.Phase() != step.Closed || s.FellBack() {
			t.Errorf("no data: %+v", acts)
		}
	}
	// A rank with an empty block still contributes.
	r := &Reduction{Rank: 1, Size: 2, Kind: wire.ReduceScatter, Counts: []int64{80, 0}, Chunk: 8}
	s = soloOf(t, r, 4)
	s.do(step.Event{Kind: step.EvStart})
	acts := s.hear(0, wire.Msg{Kind: wire.MsgIncGo, Grant: 4})
	if len(places(append(acts, s.sent()...))) != 4 || len(messages(acts, wire.MsgSentUp)) != 1 || s.Timer() != step.Never {
		t.Errorf("empty block: %+v", acts)
	}
}
