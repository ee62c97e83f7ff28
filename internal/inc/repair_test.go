package inc

import (
	"reflect"
	"testing"

	"github.com/allcast/allcast/internal/step"
	"github.com/allcast/allcast/internal/wire"
)

// asks returns the requests among actions as (try, first, n), once per request.
func asks(s *solo, acts []step.Action) (all [][3]uint32) {
	s.t.Helper()
	to := s.parent
	if to < 0 {
		to = s.children[0]
	}
	for _, a := range messages(acts, wire.MsgIncAsk) {
		if int(a.Msg.Rank) != s.red.Rank || len(a.Msg.Ranges) == 0 || len(a.Msg.Ranges) > wire.MaxRanges {
			s.t.Fatalf("asks %+v", a.Msg)
		}
		for _, q := range a.Msg.Ranges {
			if a.To == to {
				all = append(all, [3]uint32{uint32(a.Msg.Round), q.PSN, q.N})
			}
		}
	}
	return all
}

func wantAsks(s *solo, acts []step.Action, want ...[3]uint32) {
	s.t.Helper()
	if got := asks(s, acts); !reflect.DeepEqual(got, want) {
		s.t.Fatalf("asks %v, want %v", got, want)
	}
}

// A later sum proves that a chunk was sent. Its owner asks after a grace, once per try, and then fetches that chunk.
func TestOpAsksForGaps(t *testing.T) {
	s, _ := begun(t, 0, 2, 50, 100)
	s.sent()
	wantAsks(s, s.sums(0, 1, 3, 4, 7))
	wantAsks(s, s.wait(soloAlpha/4-1))
	s.sums(5) // only late
	wantAsks(s, s.wait(1), [3]uint32{1, 2, 1}, [3]uint32{1, 6, 1})
	if s.Times().Cutoff != soloAlpha/4 {
		t.Errorf("cutoff %d", s.Times().Cutoff)
	}
	// The other granted chunks are due later: nothing proves that they were sent.
	s.sums(2)
	if s.Stats().Late != 1 {
		t.Errorf("%+v", s.Stats())
	}
	s.sums(8)
	var tries []uint32
	for range 100 {
		acts := s.wait(soloAlpha / 4)
		for _, a := range asks(s, acts) {
			if a[1] == 6 {
				tries = append(tries, a[0])
			}
		}
		if f := only(acts, step.ActFetch); len(f) > 0 {
			if f[0].PSN != 6 || f[0].N != 1 || len(f) != 1 || !reflect.DeepEqual(tries, []uint32{2, 3}) {
				t.Fatalf("fetches %+v after tries %v", f, tries)
			}
			s.fetched(f[0])
			if s.Stats().Repaired != 1 || s.FellBack() || s.repair.have != 9 {
				t.Fatalf("%+v, has %d", s.Stats(), s.repair.have)
			}
			return
		}
	}
	t.Fatalf("no fetch after tries %v", tries)
}

// The time of an answer is known only if there was one request.
func TestOpLearnsFromFirstAnswers(t *testing.T) {
	s, _ := begun(t, 0, 2, 50, 100)
	s.sent()
	s.sums(1, 3)
	for s.repair.asks == nil {
		s.wait(soloAlpha / 4)
	}
	s.now = s.repair.asks[0].at + 100*step.Microsecond
	s.sums(0)
	if s.repair.answer != 100*step.Microsecond || s.repair.dev != 50*step.Microsecond {
		t.Fatalf("learned %d, %d", s.repair.answer, s.repair.dev)
	}
	for s.repair.asks[0].try == 1 {
		s.wait(soloAlpha / 4)
	}
	s.now = s.repair.asks[0].at + 10*step.Microsecond
	if s.sums(2); s.repair.answer != 100*step.Microsecond {
		t.Fatalf("learned %d from the answer to one of two requests", s.repair.answer)
	}
}

// Once an answer was late, requests stay more patient until the answer to a first request shows the true time. Later
// operations begin with what this one learned.
func TestOpKeepsBackoff(t *testing.T) {
	s, _ := begun(t, 0, 2, 50, 100)
	s.sent()
	s.repair.Answers = Answers{answer: step.Millisecond, dev: step.Millisecond / 4}
	before := s.patience(1)
	s.sums(1)
	for len(s.repair.asks) == 0 || s.repair.asks[0].try == 1 {
		s.wait(soloAlpha / 4)
	}
	s.sums(0) // the answer to one of two requests
	if got := s.patience(1); got != 2*before || s.Answers().backoff != 1 {
		t.Fatalf("waits %d us, %d before", got/step.Microsecond, before/step.Microsecond)
	}
	next := New(Config{Reduction: s.red, Alpha: s.cfg.Alpha, Limits: s.cfg.Limits, Answers: s.Answers()})
	if got := next.patience(1); got != 2*before {
		t.Errorf("the next operation waits %d us", got/step.Microsecond)
	}
	s.sums(3)
	for len(s.repair.asks) == 0 {
		s.wait(soloAlpha / 4)
	}
	if s.sums(2); s.Answers().backoff != 0 {
		t.Error("a measurement does not end the backoff")
	}
}

// A fetched chunk proves nothing about other ranks.
func TestOpFetchIsNoProof(t *testing.T) {
	s, _ := begun(t, 0, 2, 50, 100)
	s.sent()
	s.sums(0)
	s.Record().Claim(5, 1, func(i, n uint32) { s.Record().Finish(i, n) })
	s.checked(s.Summed(s.now, nil))
	if s.repair.top != 1 || s.repair.markAt != step.Never {
		t.Errorf("top %d", s.repair.top)
	}
}

// If no sum arrives, the owner asks for a few chunks. An answer makes it ask for more at a time.
func TestOpProbes(t *testing.T) {
	s, _ := begun(t, 0, 2, 50, 100)
	s.sent()
	wantAsks(s, s.wait(2*soloAlpha-1))
	wantAsks(s, s.wait(1), [3]uint32{1, 0, minProbe})
	for _, a := range asks(s, s.wait(20*soloAlpha)) {
		if a[1] != 0 || a[2] != minProbe || a[0] < 2 {
			t.Fatalf("asks for more although ranks may be slow: %v", a)
		}
	}
	s.sums(0, 1, 2, 3)
	var sizes []uint32
	for s.repair.top < s.granted() {
		for _, a := range asks(s, s.wait(soloAlpha/8)) {
			if sizes = append(sizes, a[2]); a[0] != 1 {
				t.Fatalf("asks %v", a)
			}
			for nth := a[1]; nth < a[1]+a[2]; nth++ {
				s.sums(nth)
			}
		}
	}
	if want := []uint32{2, 4, 8, 16, 16}; !reflect.DeepEqual(sizes, want) {
		t.Errorf("asks for %v chunks, want %v", sizes, want)
	}
	// Nothing is missing below the credit, so there is nothing to wait for.
	s, _ = begun(t, 0, 2, 50, 10)
	s.sent()
	s.sums(0, 1, 2, 3, 4)
	if s.Timer() != step.Never {
		t.Errorf("timer at %d", s.Timer())
	}
}

// A rank that is stopped for less than a quarter of the limit causes no fetch, however many tries there were. A
// fetch that waits for a rank is no sign of failed aggregators.
func TestOpIsPatientWithSlowRanks(t *testing.T) {
	s, _ := begun(t, 0, 2, 50, 100)
	s.sent()
	acts := s.wait(25 * step.Millisecond)
	if n := len(asks(s, acts)); n < 4 || len(only(acts, step.ActFetch)) > 0 {
		t.Fatalf("%d requests, then %+v", n, only(acts, step.ActFetch))
	}
	fetches := only(s.wait(25*step.Millisecond), step.ActFetch)
	if len(fetches) != 1 || fetches[0].N != minProbe {
		t.Fatalf("fetches %+v", fetches)
	}
	if acts := s.wait(10 * step.Second); !s.Aggregated() || len(only(acts, step.ActFetch)) > 1 {
		t.Fatalf("gave up while a fetch waits: %+v", acts)
	}
	if s.fetched(fetches[0]); !s.Aggregated() {
		t.Fatal("gave up because a fetch took long")
	}
	if s.wait(50 * step.Millisecond); !s.Aggregated() {
		t.Fatal("gave up too early")
	}
	s.sums(20)
	if s.wait(50 * step.Millisecond); !s.Aggregated() {
		t.Fatal("gave up although a sum has arrived")
	}
}

// Without sums, and although all ranks respond, the aggregators have failed: all ranks stop using them.
func TestOpSilence(t *testing.T) {
	s, _ := begun(t, 0, 2, 500, 100)
	s.sent()
	s.now += 30 * step.Millisecond
	s.sums(0, 1)
	from := s.now
	for s.Aggregated() {
		acts := s.wait(step.Millisecond)
		if m := messages(acts, wire.MsgIncDown); s.Aggregated() != (len(m) == 0) {
			t.Fatalf("aggregated: %v, announces %+v", s.Aggregated(), m)
		}
		for _, f := range only(acts, step.ActFetch) {
			if s.Aggregated() {
				s.fetched(f)
			}
		}
		if s.now-from > 200*step.Millisecond {
			t.Fatal("never gives up")
		}
	}
	if s.now-from < 25*step.Millisecond || !s.FellBack() || s.Noticed() != 0 || s.Phase() != step.Fetch ||
		s.Timer() != step.Never {
		t.Fatalf("gives up after %d ms, phase %v, noticed by %d", (s.now-from)/step.Millisecond, s.Phase(), s.Noticed())
	}
}

// If aggregators deliver some sums but lose most of them, the owner gives up, too.
func TestOpGivesUpLossyAggregators(t *testing.T) {
	s, _ := begun(t, 0, 2, 5000, 64)
	s.sent()
	nth, fetched := uint32(0), uint32(0)
	for rounds := 0; s.Aggregated(); rounds++ {
		s.now += step.Microsecond
		s.hear(1, wire.Msg{Kind: wire.MsgGrantUp, Grant: 1 << 30})
		for ; nth < s.granted(); nth++ {
			if nth%8 == 7 && s.Record().Free(nth) {
				s.sums(nth)
			}
		}
		queue := only(append(s.wait(step.Millisecond), s.sent()...), step.ActFetch)
		for ; len(queue) > 0 && s.Aggregated(); queue = queue[1:] {
			fetched += queue[0].N
			queue = append(queue, only(s.fetched(queue[0]), step.ActFetch)...)
		}
		if rounds > 1000 {
			t.Fatalf("still uses them after %d sums and %d fetched chunks", s.repair.sums, s.repair.fetched)
		}
	}
	if fetched < 32 || s.repair.silent > 50*step.Millisecond {
		t.Errorf("gives up after %d chunks and %d ms of silence", fetched, s.repair.silent/step.Millisecond)
	}
}

// Falling back stops all sending. The owner fetches everything that is missing, in bounded pieces.
func TestOpFallsBack(t *testing.T) {
	for name, down := range map[string]func(s *solo) []step.Action{
		"message": func(s *solo) []step.Action { return s.hear(3, wire.Msg{Kind: wire.MsgIncDown, Rank: 3}) },
		"own":     func(s *solo) []step.Action { return s.checked(s.Lost(s.now, nil)) },
	} {
		r := &Reduction{Rank: 2, Size: 4, Kind: wire.ReduceScatter, Counts: equalCounts(4, 30<<20), Chunk: 1 << 20}
		s := soloOf(t, r, 64)
		s.do(step.Event{Kind: step.EvStart})
		s.hear(3, wire.Msg{Kind: wire.MsgReady, Digest: s.digest, Grant: 64})
		s.hear(0, wire.Msg{Kind: wire.MsgIncGo, Grant: 64})
		s.sums(0, 3)
		acts := down(s)
		m := messages(acts, wire.MsgIncDown)
		if name == "message" && (len(m) != 1 || m[0].To != 0 || m[0].Msg.Rank != 3 || s.Noticed() != 3) ||
			name == "own" && (len(m) != 2 || m[0].Msg.Rank != 2 || s.Noticed() != 2) {
			t.Fatalf("%s: passes on %+v", name, m)
		}
		if again := down(s); len(again) > 0 {
			t.Fatalf("%s: a repetition: %+v", name, again)
		}
		if acts := s.sent(); len(places(acts)) > 0 {
			t.Fatalf("%s: still sends %v", name, places(acts))
		}
		ask := wire.Msg{Kind: wire.MsgIncAsk, Rank: 3, Round: 1, Ranges: []wire.Range{{N: 1}}}
		if acts := s.hear(3, ask); len(places(acts)) > 0 {
			t.Fatalf("%s: still answers %v", name, places(acts))
		}
		queue, n := only(acts, step.ActFetch), 0
		if len(queue) != s.maxFetches() || queue[0].PSN != 1 {
			t.Fatalf("%s: fetches %+v", name, queue)
		}
		for ; len(queue) > 0; n++ {
			if queue[0].N != 1 || s.repair.fetching > s.maxFetches() { // 3 MiB are read for each chunk
				t.Fatalf("%s: fetches %d chunks at once", name, queue[0].N)
			}
			acts := s.fetched(queue[0])
			queue = append(queue[1:], only(acts, step.ActFetch)...)
		}
		if n != 28 || s.Phase() != step.Handshake || s.Stats().Repaired != 28 {
			t.Errorf("%s: %d fetches, %v", name, n, s.Phase())
		}
	}
}

// Aggregators that fail before the barrier ends make everybody fetch.
func TestOpLostInBarrier(t *testing.T) {
	s := newSolo(t, 1, 2, 4, 8)
	s.checked(s.Lost(s.now, nil))
	acts := s.do(step.Event{Kind: step.EvStart})
	if m := messages(acts, wire.MsgReady); len(m) != 1 || m[0].Msg.Grant != 0 {
		t.Errorf("reports %+v", acts)
	}
	s = newSolo(t, 1, 2, 4, 8)
	s.do(step.Event{Kind: step.EvStart})
	if acts := s.checked(s.Lost(s.now, nil)); len(acts) > 0 {
		t.Errorf("acts in the barrier: %+v", acts)
	}
	acts = s.hear(0, wire.Msg{Kind: wire.MsgIncGo, Grant: 8})
	if len(messages(acts, wire.MsgIncDown)) != 1 || len(places(acts)) > 0 || len(only(acts, step.ActFetch)) == 0 ||
		!s.FellBack() {
		t.Errorf("%+v", acts)
	}
}

// A rank sends again what it has sent, once per try, before anything new. It passes requests on.
func TestOpAnswers(t *testing.T) {
	s, acts := begun(t, 2, 4, 100, 64) // child 3, parent 0
	if got := len(places(acts)); got != 8 {
		t.Fatalf("%d places in flight", got)
	}
	ask := func(rank, try, nth, n uint32) [][2]uint32 {
		t.Helper()
		m := wire.Msg{Kind: wire.MsgIncAsk, Rank: rank, Round: uint8(try), Ranges: []wire.Range{{PSN: nth, N: n}}}
		acts := s.hear(3, m)
		m.Comm, m.Seq = 3, 5
		if f := messages(acts, wire.MsgIncAsk); len(f) != 1 || f[0].To != 0 || !reflect.DeepEqual(f[0].Msg, m) {
			t.Fatalf("passes on %+v", f)
		}
		return places(acts)
	}
	want := func(got [][2]uint32, want ...[2]uint32) {
		t.Helper()
		if len(got) != len(want) || len(got) > 0 && !reflect.DeepEqual(got, want) {
			t.Fatalf("sends %v, want %v", got, want)
		}
	}
	// Places of rank 3 are 3, 7, 11...; 8 places were handed over.
	want(ask(3, 1, 0, 3))
	got := places(s.do(step.Event{Kind: step.EvSent, N: 8}))
	want(got[:3], [2]uint32{3, 1}, [2]uint32{7, 1}, [2]uint32{8, 0})
	want(ask(3, 1, 0, 2)) // answered already
	s.sent()
	if s.send.next != 64 {
		t.Fatalf("next place %d", s.send.next)
	}
	want(ask(3, 1, 0, 2))
	want(ask(3, 2, 0, 2), [2]uint32{3, 2}, [2]uint32{7, 2})
	want(ask(3, 1, 0, 2)) // older
	s.sent()
	want(ask(2, 1, 0, 5))                  // this rank's own
	want(ask(9, 1, 0, 5))                  // nobody's
	want(ask(3, 0, 0, 5))                  // no try
	want(ask(3, 1, 16, 1<<31))             // not sent yet
	want(ask(0, 3, 1, 1), [2]uint32{4, 3}) // others
	want(ask(1, 3, 1, 1), [2]uint32{5, 3})
	s.sent()
	// Neighbouring places travel in one action.
	for rank := range uint32(4) {
		s.send.inFlight = 8
		ask(rank, 4, 2, 1)
	}
	acts = s.do(step.Event{Kind: step.EvSent, N: 8})
	if r := only(acts, step.ActReduce); len(r) != 2 || r[0].PSN != 8 || r[0].N != 2 || r[1].PSN != 11 || r[1].Try != 4 {
		t.Fatalf("sends %+v", r)
	}
	// The window has moved on: nobody misses the first places.
	s.hear(0, wire.Msg{Kind: wire.MsgGrant, Grant: 84})
	s.sent()
	want(ask(3, 9, 4, 1))
	want(ask(3, 9, 5, 1), [2]uint32{23, 9})
	s.sent()
	s.send.inFlight = 8
	want(ask(3, 9, 20, 1)) // place 83
	want(ask(3, 10, 4, 1)) // place 19, which has the same position in the list of requests
	want(places(s.do(step.Event{Kind: step.EvSent, N: 8})), [2]uint32{83, 9})
	stray := wire.Msg{Kind: wire.MsgIncAsk, Rank: 3, Round: 11, Ranges: []wire.Range{{PSN: 5, N: 1}}}
	if acts := s.hear(1, stray); len(acts) > 0 {
		t.Errorf("answers a rank that is not a neighbour: %+v", acts)
	}
}

// The first tries only offer contributions. What the aggregator wants is sent, once per try.
func TestOpOffers(t *testing.T) {
	s, _ := begun(t, 1, 2, 100, 64)
	s.sent()
	retries := func(what string, acts []step.Action, want ...step.Action) {
		t.Helper()
		for i := range want {
			want[i].Kind = step.ActReduce
		}
		if got := only(acts, step.ActReduce); !reflect.DeepEqual(got, want) {
			t.Fatalf("%s: sends %+v, want %+v", what, got, want)
		}
		s.sent()
	}
	ask := func(try uint8, nth, n uint32) []step.Action {
		return s.hear(0, wire.Msg{Kind: wire.MsgIncAsk, Rank: 0, Round: try, Ranges: []wire.Range{{PSN: nth, N: n}}})
	}
	wanted := func(place uint32, try uint8) []step.Action { return s.checked(s.Wanted(s.now, place, try, nil)) }
	retries("before any request", wanted(6, 1))
	retries("first try", ask(1, 3, 1), step.Action{PSN: 6, N: 1, Try: 1, Offer: true})
	retries("another try", wanted(6, 2))
	retries("another place", wanted(8, 1))
	retries("not sent yet", wanted(64, 1))
	retries("wanted", wanted(6, 1), step.Action{PSN: 6, N: 1, Try: 1})
	retries("wanted twice", wanted(6, 1))
	retries("second try", ask(2, 3, 1), step.Action{PSN: 6, N: 1, Try: 2, Offer: true})
	retries("third try", ask(3, 3, 1), step.Action{PSN: 6, N: 1, Try: 3})
	retries("wanted too late", wanted(6, 3))

	// A contribution that the aggregator wants is not offered again instead.
	retries("first try of another", ask(1, 5, 1), step.Action{PSN: 10, N: 1, Try: 1, Offer: true})
	s.send.inFlight = 8
	wanted(10, 1)
	ask(2, 5, 1)
	retries("sent at last", s.do(step.Event{Kind: step.EvSent, N: 8}), step.Action{PSN: 10, N: 1, Try: 2})

	s.hear(0, wire.Msg{Kind: wire.MsgIncDown})
	retries("after the fallback", wanted(10, 2))
}

// Requests that were not answered before the window moved on are dropped.
func TestOpDropsOldRequests(t *testing.T) {
	s, _ := begun(t, 1, 2, 100, 16)
	s.do(step.Event{Kind: step.EvSent, N: 8}) // 16 places handed over, 8 in flight
	s.hear(0, wire.Msg{Kind: wire.MsgIncAsk, Rank: 0, Round: 1, Ranges: []wire.Range{{PSN: 0, N: 8}}})
	if s.send.pending != 8 {
		t.Fatalf("%d requests", s.send.pending)
	}
	s.hear(0, wire.Msg{Kind: wire.MsgGrant, Grant: 28})
	acts := s.sent()
	for _, p := range places(acts) {
		if p[0] < 12 || p[0] < 16 && p[1] != 1 || p[0] >= 16 && p[1] != 0 {
			t.Errorf("sends place %d in try %d", p[0], p[1])
		}
	}
	if s.send.pending != 0 || s.send.next != 28 {
		t.Errorf("%d requests, next place %d", s.send.pending, s.send.next)
	}
}

// A request for many separate chunks is cut into messages of the allowed size.
func TestOpCutsLongRequests(t *testing.T) {
	s, _ := begun(t, 0, 2, 4000, 8000)
	s.sent()
	for nth := uint32(1); nth < 3000; nth += 2 {
		s.Record().Take(nth)
		s.Record().Finish(nth, 1)
	}
	s.checked(s.Summed(s.now, nil))
	acts := s.wait(soloAlpha / 4)
	if m := messages(acts, wire.MsgIncAsk); len(m) != 3 || len(asks(s, acts)) != 1500 {
		t.Errorf("%d messages, %d ranges", len(m), len(asks(s, acts)))
	}
}
