package mcast

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/allcast/allcast/internal/wire"
)

// sentChunks counts the chunks that each sender of a multicast has really sent, per stream. Senders
// follow the chains: a sender starts at the earliest when its predecessor is the only unfinished sender
// before it.
type sentChunks struct {
	g    *Geometry
	sent [][]uint32 // sender index, stream
}

func newSentChunks(g *Geometry) *sentChunks {
	w := &sentChunks{g: g}
	for range g.senders {
		w.sent = append(w.sent, make([]uint32, g.Streams()))
	}
	return w
}

func (w *sentChunks) finished(i int) bool {
	for stream := range w.g.Streams() {
		if w.left(i, stream) > 0 {
			return false
		}
	}
	return true
}

// left returns how many chunks of a sender are still to be sent in a stream.
func (w *sentChunks) left(i, stream int) uint32 {
	_, n := w.g.Block(stream, w.g.senders[i])
	return n - w.sent[i][stream]
}

func (w *sentChunks) maySend(i int) bool {
	chain := w.g.chains.members[w.g.chains.of[i]]
	for p := range int(w.g.chains.pos[i]) - 1 {
		if !w.finished(chain[p]) {
			return false
		}
	}
	return !w.finished(i)
}

// tracked is a subgroup whose datagrams are reported at once.
type tracked struct{ arrivals }

func track(g *Geometry, sub, rank int, credit bool) *tracked {
	return &tracked{newArrivals(&tally{}, g, newPlacement(g, sub, rank, 0, 0), rank, credit)}
}

// accept takes a datagram.
func (r *tracked) accept(psn uint32, length int) (off int64, v Verdict) {
	off, v = r.judge(psn, length)
	if v == Placed {
		r.Finish(psn, 1)
		r.recordPlaced(r.g.find(r.Stream, psn), wire.Range{PSN: psn, N: 1})
	}
	return off, v
}

func TestArrivals(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g := mustPlan(t, drawShape(t, 8, 8), mustLayout(t, 0))[0]
		rank := rapid.IntRange(0, g.Size()-1).Draw(t, "rank")
		sub := rapid.IntRange(0, g.Streams()-1).Draw(t, "stream")
		r, w, placed := track(g, sub, rank, rapid.Bool().Draw(t, "credit")), newSentChunks(g), map[uint32]bool{}
		own, ownN := g.Block(sub, rank)
		mine := func(psn uint32) bool { return psn >= own && psn < own+ownN }
		t.Repeat(map[string]func(*rapid.T){
			"": func(t *rapid.T) { checkArrivals(t, r, w, placed, ownN) },
			"send": func(t *rapid.T) {
				if len(g.senders) == 0 {
					t.Skip("nobody sends")
				}
				i, s := rapid.IntRange(0, len(g.senders)-1).Draw(t, "sender"), rapid.IntRange(0, g.Streams()-1).Draw(t, "in")
				if left := w.left(i, s); left > 0 && w.maySend(i) {
					w.sent[i][s] += rapid.Uint32Range(1, left).Draw(t, "chunks")
				}
			},
			"deliver": func(t *rapid.T) {
				// Any chunk that was ever sent, at any time, any number of times.
				psn := rapid.Uint32Range(0, max(1, g.PSNs(sub))-1).Draw(t, "PSN")
				if psn >= g.PSNs(sub) {
					t.Skip("no chunks")
				}
				if j := g.find(sub, psn); psn-g.base[sub][j] >= w.sent[g.sender(sub, j)][sub] {
					t.Skip("not sent yet")
				}
				want, _, length := g.Locate(sub, psn)
				off, v := r.accept(psn, length)
				switch {
				case placed[psn] || mine(psn):
					if v != Duplicate {
						t.Fatalf("PSN %d again: verdict %d", psn, v)
					}
				case v != Placed || off != want:
					t.Fatalf("PSN %d: verdict %d, offset %d, want %d", psn, v, off, want)
				default:
					placed[psn] = true
				}
			},
			"foreign PSN": func(t *rapid.T) {
				psn := rapid.Uint32Min(g.PSNs(sub)).Draw(t, "PSN")
				if _, v := r.accept(psn, rapid.IntRange(0, 100).Draw(t, "length")); v != Foreign {
					t.Fatalf("PSN %d of %d: verdict %d", psn, g.PSNs(sub), v)
				}
			},
			"foreign length": func(t *rapid.T) {
				if g.PSNs(sub) == 0 {
					t.Skip("no PSN is ours")
				}
				psn := rapid.Uint32Range(0, g.PSNs(sub)-1).Draw(t, "PSN")
				_, _, length := g.Locate(sub, psn)
				wrong := length + rapid.SampledFrom([]int{-length - 1, -length, -1, 1, 1 << 20}).Draw(t, "off by")
				if _, v := r.accept(psn, wrong); v != Foreign {
					t.Fatalf("PSN %d with %d bytes: verdict %d", psn, wrong, v)
				}
			},
		})
	})
}

// checkArrivals compares what is known of a subgroup with the truth.
func checkArrivals(t *rapid.T, r *tracked, w *sentChunks, placed map[uint32]bool, ownN uint32) {
	if want := r.g.PSNs(r.Stream) - ownN - uint32(len(placed)); r.missing != want {
		t.Fatalf("%d missing, want %d", r.missing, want)
	}
	if r.received != uint64(len(placed)) {
		t.Fatalf("%d received, want %d", r.received, len(placed))
	}
	var sent, seen uint64
	for j := range r.sent {
		i := r.g.sender(r.Stream, j)
		if r.sent[j] > w.sent[i][r.Stream] {
			t.Fatalf("sender %d is thought to have sent %d, it has sent %d", i, r.sent[j], w.sent[i][r.Stream])
		}
		if r.seen == nil {
			continue
		}
		if seen += uint64(r.seen[j]); r.seen[j] > r.sent[j] {
			t.Fatalf("%d of sender %d's chunks have passed, %d are known as sent", r.seen[j], i, r.sent[j])
		}
		if j != r.self {
			sent += uint64(w.sent[i][r.Stream])
		}
	}
	if r.consumed != seen || r.consumed > sent {
		t.Fatalf("consumed %d, seen %d, sent %d", r.consumed, seen, sent)
	}
	if r.seen != nil && r.consumed < uint64(len(placed)) {
		t.Fatalf("consumed %d, placed %d", r.consumed, len(placed))
	}
}

// A datagram never places a chunk that a read is about to place: it is late, also afterwards.
func TestReadIsNotOvertaken(t *testing.T) {
	g := oneRound(t, broadcast(2, 0, 40, 8, 1))
	r := track(g, 0, 1, false)
	var in Intake
	if won, busy := in.Claim(r.Placement, []wire.Range{{PSN: 1, N: 2}}, nil); busy || !slices.Equal(won,
		[]wire.Range{{PSN: 1, N: 2}}) {
		t.Fatalf("claimed %v, busy %v", won, busy)
	}
	for _, c := range []struct {
		psn  uint32
		want Verdict
	}{{1, Late}, {0, Placed}, {2, Late}, {3, Placed}, {3, Duplicate}, {4, Placed}} {
		if _, v := r.accept(c.psn, 8); v != c.want {
			t.Errorf("PSN %d: verdict %d, want %d", c.psn, v, c.want)
		}
	}
	if r.missing != 2 || r.InPlace(1) || r.InPlace(2) {
		t.Errorf("%d missing: the read places 1 and 2, not the datagrams", r.missing)
	}
	r.Finish(1, 2)
	if _, v := r.accept(1, 8); v != Late {
		t.Errorf("after the read: verdict %d", v)
	}
}

// The tail is short; a full chunk in its place is no chunk of ours, and the other way round.
func TestTail(t *testing.T) {
	g := oneRound(t, broadcast(2, 0, 19, 8, 1))
	r := track(g, 0, 1, false)
	for _, c := range []struct {
		psn    uint32
		length int
		want   Verdict
	}{{2, 8, Foreign}, {1, 3, Foreign}, {2, 3, Placed}, {1, 8, Placed}, {3, 8, Foreign}, {0, 8, Placed}} {
		if _, v := r.accept(c.psn, c.length); v != c.want {
			t.Errorf("PSN %d, %d bytes: verdict %d, want %d", c.psn, c.length, v, c.want)
		}
	}
	if r.missing != 0 {
		t.Errorf("%d missing", r.missing)
	}
}

// What one datagram proves: its sender sent all before it, and all but the one
// before that sender have finished. Nothing about other chains.
func TestInference(t *testing.T) {
	g := oneRound(t, allgather(8, 24, 8, 2, 1)) // chains 0-3 and 4-7, 3 chunks each
	r := track(g, 0, 0, true)
	psn, _ := g.Block(0, 3)
	r.accept(psn+1, 8)
	want := []uint32{0, 3, 0, 2, 0, 0, 0, 0} // 0 is ourselves, 2 may still be sending
	for i, n := range want {
		if r.sent[i] != n || r.seen[i] != n {
			t.Errorf("sender %d: %d known as sent, %d as passed, want %d", i, r.sent[i], r.seen[i], n)
		}
	}
	if r.recordAllFinished(); r.consumed != 5 {
		t.Errorf("consumed %d, want 5: what the reliable path says may still be in our queue", r.consumed)
	}
	if r.consumeSent(); r.consumed != 21 {
		t.Errorf("consumed %d, want 21", r.consumed)
	}
}

// What is known as sent only from the reliable path may still wait in our queue:
// a datagram that is taken from it says nothing about those behind it.
func TestOnlyTakenDatagramsCount(t *testing.T) {
	g := oneRound(t, broadcast(2, 0, 10, 1, 1))
	r := track(g, 0, 1, true)
	r.recordSent(0, 8) // a mark
	for psn := range uint32(8) {
		if r.accept(psn, 1); r.consumed != uint64(psn)+1 {
			t.Fatalf("%d datagrams taken, %d consumed", psn+1, r.consumed)
		}
	}
}
