package inc

import (
	"bytes"
	"encoding/binary"
	"testing"

	"pgregory.net/rapid"

	"github.com/allcast/allcast/internal/reduce"
)

// testToken is the token of an operation in tests.
func testToken(comm, number uint32) uint64 {
	return 0x9e3779b97f4a7c15 * (uint64(comm)<<32 | uint64(number) + 1)
}

func reduceInto(dst, src []byte, typ, op uint8) error {
	return reduce.Into(dst, src, reduce.Type(typ), reduce.Op(op))
}

func testSession(tree *Tree, node int, window uint32, chunk, comms int) *Session {
	return NewSession(SessionConfig{
		Tree: tree, Node: node, Window: window, Chunk: chunk, Comms: comms, Token: testToken, Add: reduceInto,
	})
}

// contribution returns the header of a contribution to a sum of 32-bit integers.
func contribution(comm, number, place uint32, owner, child int, try uint8) *Header {
	return &Header{
		Kind: Contribution, Try: try, Type: uint8(reduce.U32), Reduce: uint8(reduce.Sum), Session: 7,
		Token: testToken(comm, number), Comm: comm, Number: number, Place: place, Owner: uint16(owner), Child: uint16(child),
	}
}

func u32s(v ...uint32) (b []byte) {
	for _, x := range v {
		b = binary.LittleEndian.AppendUint32(b, x)
	}
	return b
}

// feed gives a Session a contribution and checks whether it sends something, and which sum.
func feed(t *testing.T, s *Session, h *Header, payload []byte, want []byte) Forward {
	t.Helper()
	f, ok := s.Contribute(h, payload)
	if ok != (want != nil) {
		t.Fatalf("%+v: sends: %v, want %v", *h, ok, want != nil)
	}
	if ok && (!bytes.Equal(f.Payload, want) || f.Token != h.Token || f.Session != h.Session || f.Comm != h.Comm ||
		f.Number != h.Number || f.Place != h.Place || f.Owner != h.Owner || f.Type != h.Type || f.Reduce != h.Reduce) {
		t.Fatalf("%+v: sends %+v, want %v", *h, f, want)
	}
	return f
}

func wantStats(t *testing.T, s *Session, want SessionStats) {
	t.Helper()
	if got := s.Stats(); got != want {
		t.Fatalf("counted %+v, want %+v", got, want)
	}
}

func TestSessionForwards(t *testing.T) {
	tree := mustTree(t, "t:1=0;a:1=1-2>t:1", 3)
	a := testSession(tree, 1, 4, 8, 1)
	feed(t, a, contribution(1, 5, 9, 0, 1, 0), u32s(10, 20), nil)
	f := feed(t, a, contribution(1, 5, 9, 0, 0, 0), u32s(1, 2), u32s(11, 22))
	if f.Kind != Contribution || f.Child != 1 || f.Try != 0 {
		t.Fatalf("to the parent: %+v", f)
	}
	top := testSession(tree, 0, 4, 8, 1)
	f = feed(t, top, &f.Header, f.Payload, u32s(11, 22))
	if f.Kind != Result || f.Owner != 0 {
		t.Fatalf("to the owner: %+v", f)
	}
	wantStats(t, a, SessionStats{Contributions: 2, Sums: 1})
	// The owner's aggregator does not wait for the owner.
	feed(t, a, contribution(1, 5, 10, 2, 0, 0), u32s(7), u32s(7))
}

// An aggregator sends a complete sum again once per try, whoever contributes first.
func TestSessionRepeatsOncePerTry(t *testing.T) {
	tree := mustTree(t, "t:1=0-3", 4)
	s := testSession(tree, 0, 4, 8, 1)
	feed(t, s, contribution(1, 1, 0, 3, 0, 0), u32s(1), nil)
	feed(t, s, contribution(1, 1, 0, 3, 0, 0), u32s(1), nil)
	feed(t, s, contribution(1, 1, 0, 3, 1, 0), u32s(2), nil)
	feed(t, s, contribution(1, 1, 0, 3, 2, 0), u32s(4), u32s(7))
	feed(t, s, contribution(1, 1, 0, 3, 2, 0), u32s(4), nil)
	for try := uint8(1); try < 4; try++ {
		for i, child := range []int{1, 0, 2, 1} {
			want := u32s(7)
			if i > 0 {
				want = nil
			}
			if f := feed(t, s, contribution(1, 1, 0, 3, child, try), u32s(9), want); i == 0 && f.Try != try {
				t.Fatalf("sent as try %d, want %d", f.Try, try)
			}
		}
		feed(t, s, contribution(1, 1, 0, 3, 0, try-1), u32s(1), nil)
	}
	wantStats(t, s, SessionStats{Contributions: 3, Duplicates: 17, Sums: 1, Repeated: 3})
}

// A sum that becomes complete during a later try belongs to that try, so the try causes no second one.
func TestSessionForwardsHighestTry(t *testing.T) {
	s := testSession(mustTree(t, "t:1=0-3", 4), 0, 4, 8, 1)
	feed(t, s, contribution(1, 1, 0, 3, 0, 0), u32s(1), nil)
	feed(t, s, contribution(1, 1, 0, 3, 1, 0), u32s(2), nil)
	feed(t, s, contribution(1, 1, 0, 3, 1, 2), u32s(2), nil) // 2's first contribution is late
	if f := feed(t, s, contribution(1, 1, 0, 3, 2, 0), u32s(4), u32s(7)); f.Try != 2 {
		t.Fatalf("sent as try %d", f.Try)
	}
	feed(t, s, contribution(1, 1, 0, 3, 0, 2), u32s(1), nil)
	feed(t, s, contribution(1, 1, 0, 3, 0, 3), u32s(1), u32s(7))
}

// offer returns the header of an offer.
func offer(place uint32, owner, child int, try uint8) *Header {
	h := contribution(1, 1, place, owner, child, try)
	h.Kind = Offer
	return h
}

// wantWant gives a Session an offer and checks whether it wants the contribution.
func wantWant(t *testing.T, s *Session, h *Header, want bool) {
	t.Helper()
	f, ok := s.Contribute(h, nil)
	w := *h
	w.Kind = Want
	if ok != want || ok && (f.Header != w || f.Payload != nil) {
		t.Fatalf("%+v: sends %v %+v, want %v", *h, ok, f, want)
	}
}

// An aggregator wants what it misses. An offer of what it has is a duplicate: the first of a try repeats the sum.
func TestSessionOffers(t *testing.T) {
	s := testSession(mustTree(t, "t:1=0-3", 4), 0, 4, 8, 1)
	wantWant(t, s, offer(0, 3, 0, 1), true) // it has no slot, and opens none
	feed(t, s, contribution(1, 1, 0, 3, 0, 1), u32s(1), nil)
	wantWant(t, s, offer(0, 3, 0, 2), false)
	wantWant(t, s, offer(0, 3, 1, 2), true)
	feed(t, s, contribution(1, 1, 0, 3, 1, 2), u32s(2), nil)
	if f := feed(t, s, contribution(1, 1, 0, 3, 2, 0), u32s(4), u32s(7)); f.Try != 2 {
		t.Fatalf("sent as try %d", f.Try)
	}
	wantWant(t, s, offer(0, 3, 1, 2), false)
	feed(t, s, offer(0, 3, 1, 3), nil, u32s(7))
	wantWant(t, s, offer(0, 3, 0, 3), false)
	feed(t, s, contribution(1, 1, 4, 3, 0, 0), u32s(1), nil) // takes the slot
	wantWant(t, s, offer(0, 3, 0, 4), false)
	wantWant(t, s, offer(8, 3, 0, 4), true)
	wantStats(t, s, SessionStats{
		Contributions: 4, Duplicates: 1, Stale: 1, Offers: 8, Wanted: 3, Sums: 1, Repeated: 1,
	})
	for name, change := range map[string]func(*Header){
		"token": func(h *Header) { h.Token++ },
		"child": func(h *Header) { h.Child = 9 },
		"owner": func(h *Header) { h.Owner = 2 },
		"type":  func(h *Header) { h.Type++ },
	} {
		h := offer(4, 3, 0, 5)
		if change(h); h.Owner == 2 {
			h.Child = 2
		}
		if f, ok := s.Contribute(h, nil); ok {
			t.Errorf("%s: sends %+v", name, f)
		}
	}
	if f, ok := s.Contribute(offer(4, 3, 1, 5), u32s(1)); ok || s.stats.Malformed != 4 || s.stats.Forged != 1 {
		t.Errorf("an offer with a payload: sends %v %+v, counted %+v", ok, f, s.stats)
	}
}

// An aggregator that keeps no sums, because it has only one child, asks for the contribution instead.
func TestSessionOffersOfSingleChild(t *testing.T) {
	s := testSession(mustTree(t, "t:1;a:1=0>t:1;b:1=1-2>t:1", 3), 1, 4, 8, 1)
	feed(t, s, contribution(1, 1, 3, 1, 0, 0), u32s(5), u32s(5))
	wantWant(t, s, offer(3, 1, 0, 0), false)
	wantWant(t, s, offer(3, 1, 0, 1), true)
	feed(t, s, contribution(1, 1, 3, 1, 0, 1), u32s(5), u32s(5))
	wantWant(t, s, offer(3, 1, 0, 1), false)
}

// With one expected child, the aggregator forwards each try once, without a buffer.
func TestSessionSingleChild(t *testing.T) {
	tree := mustTree(t, "t:1;a:1=0>t:1;b:1=1-2>t:1", 3)
	s := testSession(tree, 1, 4, 8, 1)
	for try := range uint8(3) {
		if f := feed(t, s, contribution(1, 1, 3, 1, 0, try), u32s(5), u32s(5)); f.Try != try {
			t.Fatalf("sent as try %d, want %d", f.Try, try)
		}
		feed(t, s, contribution(1, 1, 3, 1, 0, try), u32s(5), nil)
	}
	wantStats(t, s, SessionStats{Contributions: 1, Duplicates: 5, Sums: 1, Repeated: 2})
	if s.buffers != 0 {
		t.Errorf("%d buffers", s.buffers)
	}
	feed(t, s, contribution(1, 1, 3, 0, 0, 4), u32s(5), nil) // the owner itself
	wantStats(t, s, SessionStats{Contributions: 1, Duplicates: 5, Sums: 1, Repeated: 2, Malformed: 1})
}

// A newer place takes the slot of an older one, complete or not, and an older place never reopens a slot.
func TestSessionSlotOrder(t *testing.T) {
	s := testSession(mustTree(t, "t:1=0-2", 3), 0, 4, 8, 1)
	feed(t, s, contribution(1, 1, 2, 2, 0, 0), u32s(1), nil)
	feed(t, s, contribution(1, 1, 6, 2, 1, 0), u32s(2), nil)
	feed(t, s, contribution(1, 1, 2, 2, 1, 0), u32s(4), nil) // stale: 6 has the slot
	feed(t, s, contribution(1, 1, 6, 2, 0, 0), u32s(8), u32s(10))
	feed(t, s, contribution(1, 1, 2, 2, 0, 5), u32s(1), nil)
	feed(t, s, contribution(1, 1, 6, 2, 0, 1), u32s(8), u32s(10))
	feed(t, s, contribution(1, 1, 3, 2, 0, 0), u32s(1), nil) // its own slot
	wantStats(t, s, SessionStats{Contributions: 4, Duplicates: 1, Stale: 2, Sums: 1, Repeated: 1})
}

// A newer operation takes all slots. Numbers wrap around.
func TestSessionOperationOrder(t *testing.T) {
	for _, old := range []uint32{1, 1<<31 - 1, 1<<32 - 1} {
		s := testSession(mustTree(t, "t:1=0-2", 3), 0, 4, 8, 1)
		feed(t, s, contribution(1, old, 7, 2, 0, 0), u32s(1), nil)
		feed(t, s, contribution(1, old, 6, 2, 0, 0), u32s(1), nil)
		feed(t, s, contribution(1, old+1, 3, 2, 0, 0), u32s(8), nil) // a lower place of a newer operation
		feed(t, s, contribution(1, old, 7, 2, 1, 0), u32s(2), nil)
		feed(t, s, contribution(1, old, 6, 2, 1, 9), u32s(2), nil) // no newer place has its slot, but the operation ended
		feed(t, s, contribution(1, old, 11, 2, 1, 0), u32s(2), nil)
		feed(t, s, contribution(1, old+1, 3, 2, 1, 0), u32s(16), u32s(24))
		feed(t, s, contribution(1, old+1, 6, 2, 1, 0), u32s(16), nil) // does not meet the old contribution
		feed(t, s, contribution(1, old+1, 6, 2, 0, 0), u32s(16), u32s(32))
		wantStats(t, s, SessionStats{Contributions: 6, Stale: 3, Sums: 2})
	}
}

// No datagram without the right token changes anything, not even which communicator is evicted.
func TestSessionForged(t *testing.T) {
	s := testSession(mustTree(t, "t:1=0-2", 3), 0, 4, 8, 1)
	feed(t, s, contribution(1, 5, 2, 2, 0, 0), u32s(1), nil)
	before := s.Memory()
	for i := range uint32(1000) {
		h := contribution(i%3, 4+i%3, i%9, 2, 1, uint8(i))
		h.Token ^= 1 << (i % 64)
		feed(t, s, h, u32s(i), nil)
		h = contribution(1, 6, 2, 2, 1, 0)
		h.Token = testToken(1, 5) // of another operation
		feed(t, s, h, u32s(i), nil)
	}
	if s.Memory() != before || len(s.comms) != 1 {
		t.Errorf("%d bytes, then %d; %d communicators", before, s.Memory(), len(s.comms))
	}
	feed(t, s, contribution(1, 5, 2, 2, 1, 0), u32s(2), u32s(3))
	wantStats(t, s, SessionStats{Contributions: 2, Forged: 2000, Sums: 1})
}

func TestSessionMalformed(t *testing.T) {
	tree := mustTree(t, "t:1=0-2", 3)
	fresh := func() *Session {
		s := testSession(tree, 0, 4, 8, 1)
		feed(t, s, contribution(1, 5, 2, 2, 0, 0), u32s(1), nil)
		return s
	}
	for name, change := range map[string]func(h *Header, payload *[]byte){
		"a result":              func(h *Header, _ *[]byte) { h.Kind = Result },
		"no kind":               func(h *Header, _ *[]byte) { h.Kind = 0 },
		"an unknown child":      func(h *Header, _ *[]byte) { h.Child = 3 },
		"the owner":             func(h *Header, _ *[]byte) { h.Child = 2 },
		"an unknown owner":      func(h *Header, _ *[]byte) { h.Owner = 3 },
		"another owner":         func(h *Header, _ *[]byte) { h.Owner = 0 },
		"another type":          func(h *Header, _ *[]byte) { h.Type = uint8(reduce.F32) },
		"another operator":      func(h *Header, _ *[]byte) { h.Reduce = uint8(reduce.Max) },
		"nothing":               func(_ *Header, p *[]byte) { *p = nil },
		"too much":              func(_ *Header, p *[]byte) { *p = u32s(1, 2, 3) },
		"another length":        func(_ *Header, p *[]byte) { *p = u32s(1, 2) },
		"a shorter length":      func(_ *Header, p *[]byte) { *p = []byte{1} },
		"a place and no length": func(h *Header, p *[]byte) { h.Place, *p = 6, nil },
	} {
		s, h, payload := fresh(), contribution(1, 5, 2, 2, 1, 0), u32s(2)
		change(h, &payload)
		if _, ok := s.Contribute(h, payload); ok || s.Stats() != (SessionStats{Contributions: 1, Malformed: 1}) {
			t.Errorf("%s: sends: %v, %+v", name, ok, s.Stats())
		}
		// It has not changed the slot.
		feed(t, s, contribution(1, 5, 2, 2, 1, 0), u32s(2), u32s(3))
	}
	// A duplicate is checked as well.
	s := fresh()
	feed(t, s, contribution(1, 5, 2, 2, 0, 9), u32s(1, 1), nil)
	if f := feed(t, s, contribution(1, 5, 2, 2, 1, 0), u32s(2), u32s(3)); f.Try != 0 {
		t.Errorf("a malformed datagram raised the try to %d", f.Try)
	}
}

// Contributions of a type that nobody can add never become a sum, in any order, and cost no memory.
func TestSessionUnknownType(t *testing.T) {
	for _, order := range [][]int{{0, 1, 2}, {2, 1, 0}, {1, 2, 0}, {0, 2, 1}} {
		s := testSession(mustTree(t, "t:1=0-3", 4), 0, 4, 8, 1)
		for try := range uint8(3) {
			for _, child := range order {
				h := contribution(1, 5, 2, 3, child, try)
				h.Type = 99
				feed(t, s, h, u32s(1), nil)
			}
		}
		if got := s.Stats(); got.Malformed == 0 || got.Sums != 0 || s.buffers > 3 {
			t.Errorf("%v: %+v, %d buffers", order, got, s.buffers)
		}
		// The slot still works for the next chunk.
		for child := range 3 {
			want := u32s(3)
			if child < 2 {
				want = nil
			}
			feed(t, s, contribution(1, 5, 6, 3, child, 0), u32s(1), want)
		}
	}
}

// With too many communicators, one that is idle loses its slots: soon if all of them are complete.
func TestSessionEvicts(t *testing.T) {
	const window, children = 4, 3
	s := testSession(mustTree(t, "t:1=0-2", 3), 0, window, 8, 2)
	feed(t, s, contribution(1, 1, 0, 2, 0, 0), u32s(1), nil)
	feed(t, s, contribution(2, 1, 0, 2, 0, 0), u32s(2), nil)
	feed(t, s, contribution(2, 1, 0, 2, 1, 0), u32s(2), u32s(4))
	full := s.Memory()
	// 1 is incomplete, and 2 has just been active.
	feed(t, s, contribution(3, 1, 0, 2, 0, 0), u32s(4), nil)
	if s.comms[3] != nil || s.Stats().Crowded != 1 {
		t.Fatalf("%+v", s.Stats())
	}
	for range idleComplete * children {
		feed(t, s, contribution(3, 1, 0, 2, 0, 1), u32s(4), nil) // evicts 2 in the end
	}
	if s.comms[1] == nil || s.comms[2] != nil || s.comms[3] == nil || s.Memory() > full {
		t.Fatalf("%d communicators, %d bytes after %d", len(s.comms), s.Memory(), full)
	}
	feed(t, s, contribution(3, 1, 0, 2, 1, 0), u32s(10), u32s(14))
	feed(t, s, contribution(1, 1, 0, 2, 1, 0), u32s(10), u32s(11))
	// A slot that never completes does not hold its communicator for ever.
	feed(t, s, contribution(1, 2, 0, 2, 1, 0), u32s(10), nil)
	feed(t, s, contribution(3, 2, 0, 2, 1, 0), u32s(10), nil)
	crowded := s.Stats().Crowded
	for try := range uint8(200) {
		feed(t, s, contribution(3, 2, 0, 2, 1, try), u32s(10), nil)
		s.Contribute(contribution(2, 1, 1, 2, 0, try), u32s(2))
	}
	if n := s.Stats().Crowded - crowded; s.comms[1] != nil || s.comms[3] == nil ||
		n < idleWindows*window*children/2-2 || n > idleWindows*window*children/2 {
		t.Fatalf("evicted after %d datagrams without room", n)
	}
}

// More communicators than have room reduce at the same time. Those that have room get their sums.
func TestSessionCrowded(t *testing.T) {
	const places, room, comms = 200, 4, 6
	s := testSession(mustTree(t, "t:1=0-7", 8), 0, 64, 8, room)
	sums := map[uint32]int{}
	for place := range uint32(places) {
		for child := range 8 {
			for comm := range uint32(comms) {
				if owner := int(place % 8); owner != child {
					// The children are at different places.
					if _, ok := s.Contribute(contribution(comm, 0, place+uint32(child)%2*8, owner, child, 0), u32s(1)); ok {
						sums[comm]++
					}
				}
			}
		}
	}
	served := 0
	for _, n := range sums {
		if n >= places-16 {
			served++
		}
	}
	if served != room || len(sums) != room || s.Stats().Crowded == 0 {
		t.Errorf("sums by communicator: %v, %+v", sums, s.Stats())
	}
}

// The sum has the same bits as Combine, whatever the order of arrival, for all types and operators.
func TestSessionsEqualCombine(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.IntRange(2, 9).Draw(t, "size")
		text := drawTree(t, size)
		tree, err := ParseTree(text, size)
		if err != nil {
			t.Fatal(err)
		}
		typ := rapid.Uint8Range(uint8(reduce.F32), uint8(reduce.Bool)).Draw(t, "type")
		op := rapid.Uint8Range(uint8(reduce.Sum), uint8(reduce.PremulSum)).Draw(t, "operator")
		length := reduce.Type(typ).Size() * rapid.IntRange(1, 5).Draw(t, "elements")
		if reduceInto(make([]byte, length), make([]byte, length), typ, op) != nil {
			return // no such reduction
		}
		owner := rapid.IntRange(0, size-1).Draw(t, "owner")
		inputs := make([][]byte, size)
		for r := range inputs {
			inputs[r] = rapid.SliceOfN(rapid.Byte(), length, length).Draw(t, "input")
		}
		want, scratch := make([]byte, length), make([]byte, tree.Depth()*length)
		tree.Combine(want, owner, scratch, func(r int) []byte { return inputs[r] }, func(dst, src []byte) {
			if err := reduceInto(dst, src, typ, op); err != nil {
				t.Fatal(err)
			}
		})
		got := runTree(t, tree, owner, typ, op, inputs)
		if !bytes.Equal(got, want) {
			t.Fatalf("%s, owner %d: the aggregators made %x, Combine made %x", text, owner, got, want)
		}
	})
}

// runTree sends contributions through all Sessions of a tree in random order, with duplicates.
func runTree(t *rapid.T, tree *Tree, owner int, typ, op uint8, inputs [][]byte) (sum []byte) {
	var sessions []*Session
	for node := range tree.Nodes {
		sessions = append(sessions, testSession(tree, node, 1, len(inputs[0]), 1))
	}
	type datagram struct {
		node int
		Header
		payload []byte
	}
	var queue []datagram
	for rank, in := range inputs {
		if rank != owner {
			node, child := tree.Server(rank)
			h := contribution(1, 1, 0, owner, child, 0)
			h.Type, h.Reduce = typ, op
			queue = append(queue, datagram{node, *h, in})
		}
	}
	for len(queue) > 0 {
		i := rapid.IntRange(0, len(queue)-1).Draw(t, "next")
		d := queue[i]
		if rapid.IntRange(0, 3).Draw(t, "duplicate") > 0 {
			queue = append(queue[:i], queue[i+1:]...)
		}
		f, ok := sessions[d.node].Contribute(&d.Header, d.payload)
		switch {
		case !ok:
		case f.Kind == Result && (d.node != tree.Top || sum != nil):
			t.Fatalf("node %d sends %+v to the owner", d.node, f)
		case f.Kind == Result:
			sum = bytes.Clone(f.Payload)
		default:
			queue = append(queue, datagram{tree.Nodes[d.node].Parent, f.Header, bytes.Clone(f.Payload)})
		}
	}
	return sum
}

// Combine does not change the inputs, and uses no more than the promised scratch memory.
func TestCombineKeepsInputs(t *testing.T) {
	tree := mustTree(t, "t:1;a:1=0>t:1;b:1=1-2>t:1;c:1=3-4>b:1;d:1=5-6>c:1", 7)
	inputs := make([][]byte, 7)
	for r := range inputs {
		inputs[r] = u32s(1<<r, 100+uint32(r))
	}
	dst := u32s(0, 0)
	add := func(dst, src []byte) {
		if err := reduceInto(dst, src, uint8(reduce.U32), uint8(reduce.Sum)); err != nil {
			t.Fatal(err)
		}
	}
	tree.Combine(dst, 3, make([]byte, tree.Depth()*8), func(r int) []byte { return inputs[r] }, add)
	if !bytes.Equal(dst, u32s(127-8, 618)) {
		t.Errorf("sum %v", dst)
	}
	for r := range inputs {
		if !bytes.Equal(inputs[r], u32s(1<<r, 100+uint32(r))) {
			t.Errorf("input of rank %d changed", r)
		}
	}
	one := mustTree(t, "t:1=0", 1)
	one.Combine(dst, 0, nil, nil, nil)
	if !bytes.Equal(dst, u32s(127-8, 618)) {
		t.Error("a tree of one rank has nothing to add")
	}
}

func TestHeaderRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := rapid.SliceOfN(rapid.Byte(), HeaderSize, HeaderSize+4).Draw(t, "bytes")
		h := ParseHeader(b)
		again := make([]byte, HeaderSize)
		h.Put(again)
		if !bytes.Equal(again, b[:HeaderSize]) {
			t.Fatalf("%x was decoded as %+v, which is encoded as %x", b, h, again)
		}
	})
	h := Header{Contribution, 2, 3, 4, 0x05060708, 0x090a0b0c0d0e0f10, 0x11121314, 0x15161718, 0x191a1b1c, 0x1d1e, 0x1f20}
	b := make([]byte, HeaderSize)
	h.Put(b)
	want := []byte{
		1, 2, 3, 4, 8, 7, 6, 5, 0x10, 0xf, 0xe, 0xd, 0xc, 0xb, 0xa, 9, 0x14, 0x13, 0x12, 0x11, 0x18, 0x17, 0x16, 0x15,
		0x1c, 0x1b, 0x1a, 0x19, 0x1e, 0x1d, 0x20, 0x1f,
	}
	if !bytes.Equal(b, want) {
		t.Errorf("the wire format changed: %x", b)
	}
}

// FuzzSession feeds a Session arbitrary datagrams with valid tokens. Every sum it sends must have all
// contributions once: each child contributes its own bit.
func FuzzSession(f *testing.F) {
	f.Add([]byte{0, 0, 1, 0, 0, 2, 0, 0, 3})
	f.Add(bytes.Repeat([]byte{1, 7, 2, 3, 9, 8}, 20))
	tree, err := ParseTree("t:1=0-3", 4)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		s := testSession(tree, 0, 3, 8, 2)
		for ; len(b) >= 4; b = b[4:] {
			h := contribution(uint32(b[0]%4), uint32(b[0]/4%4), uint32(b[1]%16), int(b[1]%4), int(b[2]%5), b[3]%4)
			h.Kind = Kind(b[3] / 4 % 3)
			f, ok := s.Contribute(h, u32s(1<<h.Child, h.Place)[:4+b[2]/128*4])
			if ok && binary.LittleEndian.Uint32(f.Payload) != 15&^(1<<h.Owner) {
				t.Fatalf("%+v: sum %x", f.Header, f.Payload)
			}
			if s.Memory() > s.cfg.MaxMemory() {
				t.Fatalf("%d bytes, the limit is %d", s.Memory(), s.cfg.MaxMemory())
			}
		}
	})
}
