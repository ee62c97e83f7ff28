package bpf

import (
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/allcast/allcast/internal/fabric"
	"github.com/allcast/allcast/internal/testenv"
)

// A storm is senders that never stop, to placements that come and go.
type storm struct {
	*loopbackSockets
	tokens [8]atomic.Uint64
	sent   atomic.Uint64
	stop   atomic.Bool
	wg     sync.WaitGroup
}

// Large chunks take a program a while to copy, so that somebody may be in between.
const (
	stormChunk  = 60000
	stormChunks = 16
)

func newStorm(t *testing.T, cfg Config) *storm {
	t.Helper()
	s := &storm{loopbackSockets: newLoopback(t, cfg, 1, false)}
	for seed := range uint64(2) {
		s.wg.Go(func() {
			r := rand.New(rand.NewPCG(seed, 1))
			to := &unix.SockaddrInet4{Port: int(s.groups[0].Port()), Addr: s.groups[0].Addr().As4()}
			payload := make([]byte, stormChunk)
			for i := range payload {
				payload[i] = 0xab
			}
			for !s.stop.Load() {
				token := s.tokens[r.IntN(len(s.tokens))].Load()
				// Of a placement that is gone, sometimes.
				b := datagram(header(token, r.Uint32N(stormChunks)), payload)
				if unix.Sendto(s.tx, b, 0, to) == nil {
					s.sent.Add(1)
				}
			}
		})
	}
	t.Cleanup(s.end)
	return s
}

func (s *storm) end() {
	s.stop.Store(true)
	s.wg.Wait()
}

// When Close has returned nothing is written any more, however hard it rains.
func TestCloseInStorm(t *testing.T) {
	s := newStorm(t, Config{Chunk: stormChunk})
	rounds := 500
	if testenv.Race {
		rounds = 100
	}
	var wg sync.WaitGroup
	for k := range 2 { // placements at once, of memory of their own
		const size = stormChunk * stormChunks
		mem := s.alloc(t, size)
		wg.Go(func() {
			var old *fabric.PlacementSpec
			for round := range rounds {
				l := specOf(0, stormChunk, size)
				if round%3 == 2 { // the same place in the table
					l.Token = old.Token + placements<<20
				}
				old = l
				a := s.Area(mem)
				opened := a.Open(l)
				if opened == nil {
					t.Error("no placement")
					return
				}
				p := follow(opened, l)
				for i := k; i < len(s.tokens); i += 2 {
					s.tokens[i].Store(l.Token)
				}
				until(t, "a chunk", p.unseen) // there may be another on its way
				if round%2 == 0 {
					stormClaim(t, s, p, mem)
				}
				p.Close()
				if !calm(mem, s) {
					t.Errorf("round %d: memory of a closed placement was written", round)
					return
				}
				a.Release()
			}
		})
	}
	wg.Wait()
	s.end()
	nothingTaken(t, s.Offload)
}

// stormClaim takes chunks away while they come: each has been placed then, or never is.
func stormClaim(t *testing.T, s *storm, p *follower, mem []byte) {
	t.Helper()
	p.claim(3, 10)
	for psn := range uint32(stormChunks) {
		if psn >= 3 && psn < 13 {
			mem[(psn+1)*stormChunk-1] ^= 0xff
		}
	}
	want := make([]byte, stormChunks)
	for psn := range want {
		want[psn] = mem[(psn+1)*stormChunk-1]
	}
	s.some(t)
	for psn := 3; psn < 13; psn++ {
		if got := mem[(psn+1)*stormChunk-1]; got != want[psn] {
			t.Errorf("chunk %d was written after Claim", psn)
		}
	}
}

// some lets some packets come.
func (s *storm) some(t *testing.T) {
	t.Helper()
	before := s.sent.Load()
	until(t, "packets", func() bool { return s.sent.Load() > before+4 })
}

// calm reports whether memory stays as it is while packets come. It changes the last byte of
// each chunk at once: that is the one that is written last.
func calm(mem []byte, s *storm) bool {
	for at := stormChunk - 1; at < len(mem); at += stormChunk {
		mem[at] = 0x55
	}
	for before := s.sent.Load(); s.sent.Load() < before+4; {
		runtime.Gosched()
	}
	for at := stormChunk - 1; at < len(mem); at += stormChunk {
		if mem[at] != 0x55 {
			return false
		}
	}
	return true
}

// A buffer that is given back while packets for it come is no one's: the region that has its
// number next is not written.
func TestFreeInStorm(t *testing.T) {
	s := newStorm(t, Config{Chunk: stormChunk})
	const size = stormChunk * stormChunks
	for range 10 {
		mem, err := s.Alloc(size)
		must(t, err)
		l := specOf(0, stormChunk, size)
		a, p := s.open(t, mem, l)
		s.tokens[0].Store(l.Token)
		until(t, "a chunk", p.unseen)
		p.Close()
		a.Release()
		if s.Free(mem) != nil {
			t.Fatal("not ours")
		}
		if mem, err = s.Alloc(size); err != nil {
			t.Fatal(err)
		}
		if !calm(mem, s) {
			t.Fatal("new memory was written")
		}
		must(t, s.Free(mem))
	}
}
