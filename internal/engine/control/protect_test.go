package control

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/allcast/allcast/internal/node"
	"github.com/allcast/allcast/internal/seal"
	"github.com/allcast/allcast/internal/wire"
)

// inlineDigest is the size up to which the loop computes digests.
const inlineDigest = 256 << 10

// protected runs a test with checksums and with sealed datagrams.
func protected(t *testing.T, size int, f func(t *testing.T, n *memNet)) {
	t.Helper()
	for _, secure := range []bool{false, true} {
		t.Run(fmt.Sprintf("secure %v", secure), func(t *testing.T) {
			n := newMemNet(size)
			n.secure, n.integrity = secure, !secure
			f(t, n)
		})
	}
}

// known is text that a test recognises on the network.
var known = bytes.Repeat([]byte("known plaintext "), 800)

// gatherKnown has all ranks gather blocks of different text, and compares.
func gatherKnown(t *testing.T, all []*engine, block int) {
	t.Helper()
	counts, want := make([]int64, len(all)), []byte(nil)
	bufs := make([][]byte, len(all))
	for r := range all {
		counts[r] = int64(block)
		want = append(want, known[r:r+block]...)
	}
	for r := range bufs {
		bufs[r] = make([]byte, len(want))
	}
	everywhere(t, all, func(r int) Call {
		return Call{Kind: wire.Allgather, Algo: Multicast, Counts: counts, Send: known[r : r+block], Recv: bufs[r]}
	})
	for r := range bufs {
		if !bytes.Equal(bufs[r], want) {
			t.Fatalf("rank %d: wrong data", r)
		}
	}
}

// A changed datagram is counted, and its chunk is fetched.
func TestChangedDatagrams(t *testing.T) {
	protected(t, 3, func(t *testing.T, n *memNet) {
		t.Helper()
		var mu sync.Mutex
		k, changed := 0, 0
		n.ranks[1].change = func(d *memDatagram) {
			mu.Lock()
			defer mu.Unlock()
			if k++; k%5 == 0 {
				d.payload[k%len(d.payload)] ^= 0x10
				changed++
			}
		}
		all := n.engines(t)
		gatherKnown(t, all, 5000)
		if s := all[1].Stats(); changed == 0 || s.Corrupt != uint64(changed) || s.Repaired == 0 {
			t.Errorf("%d changed, %d counted, %d repaired", changed, s.Corrupt, s.Repaired)
		}
		if s := all[2].Stats(); s.Corrupt != 0 {
			t.Errorf("rank 2 counts %d", s.Corrupt)
		}
	})
}

// A changed header does not place a good payload elsewhere.
func TestChangedHeaders(t *testing.T) {
	protected(t, 2, func(t *testing.T, n *memNet) {
		t.Helper()
		n.ranks[1].change = func(d *memDatagram) { d.h.Imm ^= 1 } // the place of the next chunk
		all := n.engines(t)
		broadcast(t, all, 10_000)
		if s := all[1].Stats(); s.Corrupt == 0 || s.Repaired == 0 {
			t.Errorf("%d counted, %d repaired", s.Corrupt, s.Repaired)
		}
	})
}

// Sealed datagrams do not show the text. Plain datagrams do, so the test would notice.
func TestSealedIsUnreadable(t *testing.T) {
	protected(t, 3, func(t *testing.T, n *memNet) {
		t.Helper()
		var mu sync.Mutex
		seen, nonces := false, map[string][]byte{}
		n.ranks[2].change = func(d *memDatagram) {
			mu.Lock()
			defer mu.Unlock()
			seen = seen || bytes.Contains(d.payload, known[:16])
			// No two payloads with one token, one sender (by PSN) and one immediate.
			at := fmt.Sprintf("%x/%x", d.h.Token, d.h.Imm)
			if old, ok := nonces[at]; ok && !bytes.Equal(old, d.payload) {
				t.Errorf("%s was used twice", at)
			}
			nonces[at] = bytes.Clone(d.payload)
		}
		all := n.engines(t)
		for range 5 {
			gatherKnown(t, all, 3000)
		}
		if seen == n.secure {
			t.Errorf("plaintext seen: %v", seen)
		}
	})
}

// Replayed, moved and forged datagrams do no harm, and are counted.
func TestReplayedDatagrams(t *testing.T) {
	protected(t, 2, func(t *testing.T, n *memNet) {
		t.Helper()
		to := n.ranks[1]
		var old []memDatagram
		to.change = func(d *memDatagram) {
			for _, o := range old { // of this operation, and of earlier ones
				to.queue <- o
			}
			old = append(old, memDatagram{d.h, bytes.Clone(d.payload)})
			if n.secure {
				moved := *d // with the right token at a place that is free
				moved.h.Imm++
				moved.payload = bytes.Clone(d.payload)
				to.queue <- moved
			}
			if len(old) > 8 {
				old = old[4:]
			}
		}
		all := n.engines(t)
		for range 4 {
			broadcast(t, all, 3000)
		}
		s := all[1].Stats()
		if s.Duplicates == 0 || s.Stale == 0 || n.secure && s.Corrupt == 0 {
			t.Errorf("%d duplicates, %d stale, %d corrupt", s.Duplicates, s.Stale, s.Corrupt)
		}
	})
}

// Sealing reduces the chunk by what it adds to the datagram.
func TestSealedSizes(t *testing.T) {
	protected(t, 2, func(t *testing.T, n *memNet) {
		t.Helper()
		plain := n.ranks[0].Capabilities()
		all := n.engines(t)
		tag := 0
		if n.secure {
			tag = seal.TagSize
		}
		if c := all[0].Caps(); c.Chunk != plain.Chunk-tag || c.Overhead != plain.Overhead+tag {
			t.Errorf("%+v of %+v", c, plain)
		}
		broadcast(t, all, 1000)
		chunks := (1000 + plain.Chunk - tag - 1) / (plain.Chunk - tag)
		if got, want := all[0].Stats().McastBytes, uint64(1000+chunks*(plain.Header+tag)); got != want {
			t.Errorf("%d bytes were multicast, want %d", got, want)
		}
	})
}

// A rank and its neighbour detect a bit that changes in the rank's memory after it was received, whatever
// the size. The error names the ranks whose bytes differ.
func TestMemoryChanged(t *testing.T) {
	for _, size := range []int{1000, inlineDigest + 1000} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			const ranks, bad = 4, 2
			n := newMemNet(ranks)
			n.integrity = true
			if size > inlineDigest {
				n.chunk = 8000
			}
			bufs := make([][]byte, ranks)
			for r := range bufs {
				bufs[r] = make([]byte, size)
			}
			flip := sync.OnceFunc(func() { bufs[bad][3] ^= 0x20 }) // its first chunk is in place
			n.ranks[bad].after = flip
			all := n.engines(t)
			var reqs []*Request
			for r, e := range all {
				q, err := e.Start(World, Call{Kind: wire.Broadcast, Algo: Multicast, Recv: bufs[r]})
				if err != nil {
					t.Fatal(err)
				}
				reqs = append(reqs, q)
			}
			for r, q := range reqs {
				<-q.Done()
				err := q.Err()
				var e *node.Error
				switch {
				case err == nil && r != bad && r != bad-1:
					if !bytes.Equal(bufs[r], bufs[0]) {
						t.Errorf("rank %d: wrong data and no error", r)
					}
				case !errors.As(err, &e) || e.Reason != node.Corrupt || e.Culprit != node.NoRank || e.Pair == nil ||
					!slices.Contains(e.Pair.Ranks[:], bad):
					t.Errorf("rank %d: %v", r, err)
				default:
					t.Logf("rank %d: %v", r, err)
				}
			}
		})
	}
}

// Digests of unchanged memory agree, over several rounds too.
func TestDigestsAgree(t *testing.T) {
	protected(t, 3, func(t *testing.T, n *memNet) {
		t.Helper()
		n.integrity = true // also with sealed datagrams
		n.chunk = 8000
		all := n.engines(t)
		for _, block := range []int{0, 1, 99, 5000} {
			gatherKnown(t, all, block)
		}
		broadcast(t, all, inlineDigest+1)
	})
}
