package fabrictest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/allcast/allcast/internal/fabric"
)

// The last message before Drop arrives, and then a goodbye. The dropped peer is not lost, and nothing
// more goes to it or comes from it.
func testDrop(t *testing.T, n Network) {
	t.Helper()
	for name, talk := range map[string][]int{"none": nil, "ours": {0}, "theirs": {1}, "both": {0, 1}} {
		t.Run(name, func(t *testing.T) {
			w := n.open(t, 2)
			for _, r := range talk {
				w.Ranks[r].Send(1-r, []byte("hello"))
				w.recs[1-r].waitMessage(t, r, "hello")
			}
			w.Ranks[0].Send(1, []byte("verdict"))
			w.Ranks[0].Drop(1)
			w.Ranks[0].Send(1, []byte("too late"))
			late := fabric.Piece{Nth: 1, Len: 1}
			w.Ranks[0].Put(1, late, []byte("x"))
			w.recs[0].waitDone(t, 1, late)
			if err := w.recs[1].waitLost(t, 0); !errors.Is(err, fabric.ErrGoodbye) {
				t.Errorf("the dropped rank lost its peer with %v", err)
			}
			w.close(t)
			w.recs[1].mu.Lock()
			defer w.recs[1].mu.Unlock()
			if m := w.recs[1].order[0]; m[len(m)-1] != "verdict" {
				t.Errorf("the dropped rank got %v", m)
			}
			if len(w.recs[0].lost) > 0 {
				t.Errorf("the dropping rank lost %v", w.recs[0].lost)
			}
		})
	}
}

// Everything that is queued arrives although the sender closes at once, and then the goodbye. The
// closing rank hears nothing more, and a second Close does nothing.
func testGoodbye(t *testing.T, n Network) {
	t.Helper()
	w := n.open(t, 3)
	data := fill(5*256<<10, 3)
	p := fabric.Piece{Nth: 1, Len: int64(len(data))}
	w.Ranks[2].Send(0, []byte("hello")) // rank 0 never sends to rank 2
	w.recs[0].waitMessage(t, 2, "hello")
	w.Ranks[0].Send(1, []byte("first"))
	w.Ranks[0].Put(1, p, data)
	w.Ranks[0].Send(1, []byte("last"))
	w.closeRank(t, 0)
	w.recs[0].waitDone(t, 1, p)
	for _, r := range []int{1, 2} {
		if err := w.recs[r].waitLost(t, 0); !errors.Is(err, fabric.ErrGoodbye) {
			t.Errorf("rank %d lost its peer with %v", r, err)
		}
	}
	w.recs[1].waitPiece(t, 0, p, data)
	w.recs[1].mu.Lock()
	if want := []string{"first", "piece 1", "last"}; !slices.Equal(w.recs[1].order[0], want) {
		t.Errorf("rank 1 got %v, want %v", w.recs[1].order[0], want)
	}
	w.recs[1].mu.Unlock()
	w.closeRank(t, 0)
	if len(w.recs[0].lost) > 0 {
		t.Errorf("the closing rank lost %v", w.recs[0].lost)
	}
	w.echo(t, 1, 2)
}

// The crash of a peer is reported once, without a goodbye. All puts to it are done exactly once.
func testCrash(t *testing.T, n Network) {
	t.Helper()
	w := n.open(t, 3)
	w.echo(t, 0, 1)
	w.echo(t, 0, 2)
	w.Kill(1)
	data := make([]byte, 1<<20)
	var puts []fabric.Piece
	for i := range uint32(3) {
		puts = append(puts, fabric.Piece{Nth: i, Len: int64(len(data))})
		w.Ranks[0].Put(1, puts[i], data)
	}
	if err := w.recs[0].waitLost(t, 1); errors.Is(err, fabric.ErrGoodbye) {
		t.Errorf("the crashed rank said goodbye: %v", err)
	}
	late := fabric.Piece{Nth: 9, Len: 5}
	w.Ranks[0].Put(1, late, []byte("later"))
	for _, p := range append(puts, late) {
		w.recs[0].waitDone(t, 1, p)
	}
	if d := w.Ranks[0].Direct; d != nil {
		buf := make([]byte, 10)
		op := fabric.OpKey{Seq: 4}
		w.register(t, 0, op, buf)
		id := fabric.ReadID{Op: op, ID: 1}
		d.ReadInto(1, fabric.ReadRequest{ReadID: id, Spans: []fabric.Span{{Len: 10}}}, buf)
		w.recs[0].wait(t, "the end of a direct read", func() bool { return slices.Equal(w.recs[0].ended[id], []bool{false}) })
		w.Ranks[0].Unregister(op)
	}
	w.echo(t, 0, 2)
}

// Ranks send, put, read, cancel, drop and close all at the same time: every put is done exactly once,
// and nothing hangs.
func testCloseWithTraffic(t *testing.T, n Network) {
	t.Helper()
	const ranks, worlds, steps = 4, 4, 30
	for seed := range uint64(worlds) {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			w := n.open(t, ranks)
			data := make([]byte, 500_000)
			var puts [ranks]int
			var wg sync.WaitGroup
			for r, me := range w.Ranks {
				op := fabric.OpKey{Seq: uint64(r)}
				w.register(t, r, op, data)
				wg.Go(func() {
					rng := rand.New(rand.NewPCG(seed, uint64(r)))
					for i := range steps {
						to := (r + 1 + rng.IntN(ranks-1)) % ranks
						switch rng.IntN(8) {
						case 0, 1, 2:
							me.Send(to, make([]byte, rng.IntN(2000)))
						case 3, 4:
							k := rng.IntN(len(data))
							me.Put(to, fabric.Piece{Op: op, Nth: uint32(i), Len: int64(k)}, data[:k])
							puts[r]++
						case 5:
							if me.Reader != nil {
								me.Reader.Read(to, fabric.ReadRequest{
									ReadID: fabric.ReadID{Op: fabric.OpKey{Seq: uint64(to)}, ID: uint64(i)},
									Spans:  []fabric.Span{{Len: int64(rng.IntN(len(data)))}},
								})
							}
						case 6:
							me.Cancel(op)
						case 7:
							if rng.IntN(8) == 0 {
								me.Drop(to)
							}
						}
					}
					if r%2 == 0 {
						w.closeRank(t, r)
					}
				})
			}
			wg.Wait()
			w.close(t)
			for r, rec := range w.recs {
				done := 0
				for _, d := range rec.done {
					done += len(d)
				}
				if done != puts[r] {
					t.Errorf("rank %d: %d of %d puts are done", r, done, puts[r])
				}
			}
		})
	}
}
