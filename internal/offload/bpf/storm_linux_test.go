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

// storm is a set of senders that send without pause while placements open and close.
type storm struct {
	*loopbackSockets
	tokens [8]atomic.Uint64
	sent   atomic.Uint64
	stop   atomic.Bool
	wg     sync.WaitGroup
}

// Programs need some time to copy large chunks, which makes races with the process more likely.
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
				// The placement may be closed by now.
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

// No program writes to the memory of a placement after Close has returned.
func TestCloseInStorm(t *testing.T) {
	s := newStorm(t, Config{Chunk: stormChunk})
	rounds := 500
	if testenv.Race {
		rounds = 100
	}
	var wg sync.WaitGroup
	for k := range 2 { // concurrent placements, each with its own memory
		const size = stormChunk * stormChunks
		mem := s.alloc(t, size)
		wg.Go(func() {
			var old *fabric.PlacementSpec
			for round := range rounds {
				l := specOf(0, stormChunk, size)
				if round%3 == 2 { // the same table entry
					l.Token = old.Token + placements<<20
				}
				old = l
				a := s.Area(mem)
				opened := a.Open(l)
				if opened == nil {
					t.Error("Open refused the placement")
					return
				}
				p := follow(opened, l)
				for i := k; i < len(s.tokens); i += 2 {
					s.tokens[i].Store(l.Token)
				}
				until(t, "a chunk", p.unseen) // another may be in flight
				if round%2 == 0 {
					stormClaim(t, s, p, mem)
				}
				p.Close()
				if !calm(mem, s) {
					t.Errorf("round %d: a program wrote to the memory of a closed placement", round)
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

// stormClaim claims chunks while packets arrive. No program may write a chunk after claim returns.
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
			t.Errorf("a program wrote chunk %d after Claim", psn)
		}
	}
}

// some waits until a few more packets were sent.
func (s *storm) some(t *testing.T) {
	t.Helper()
	before := s.sent.Load()
	until(t, "packets to be sent", func() bool { return s.sent.Load() > before+4 })
}

// calm reports whether memory stays unchanged while packets arrive. It checks the last byte of each
// chunk, because programs write that byte last.
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

// After Free, packets for the old buffer do not change the region that reuses its id.
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
			t.Fatal("Free refused the buffer")
		}
		if mem, err = s.Alloc(size); err != nil {
			t.Fatal(err)
		}
		if !calm(mem, s) {
			t.Fatal("a program wrote to newly allocated memory")
		}
		must(t, s.Free(mem))
	}
}
