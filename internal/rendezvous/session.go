package rendezvous

import (
	"context"
	"crypto/rand"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
)

// A Session connects this rank with all ranks that joined.
type Session struct {
	seed  [seedSize]byte
	star  star
	local netip.Addr

	turn chan struct{} // holds a token, so that Exchanges do not overlap
	seq  uint32
	err  error // why the session is broken; guarded by the token

	closing sync.Once
	closed  chan struct{}
}

// star is a rank's part of the connections: a hub, a leaf, or solo.
type star interface {
	exchange(ctx context.Context, seq uint32, blob []byte) ([][]byte, error)
	localAddr() netip.Addr
	close() // makes exchange return ErrClosed
}

func newSeed() (seed [seedSize]byte) {
	_, _ = rand.Read(seed[:]) // a failure would end the process
	return seed
}

func newSession(st star, seed [seedSize]byte) *Session {
	s := &Session{seed: seed, star: st, local: st.localAddr(), turn: make(chan struct{}, 1), closed: make(chan struct{})}
	s.turn <- struct{}{}
	return s
}

// Seed returns random bytes that rank 0 has drawn in Join, the same on all ranks.
func (s *Session) Seed() [32]byte { return s.seed }

// LocalAddr returns this rank's address on its connection to rank 0. On rank 0 it is an address that other
// ranks use, not of loopback if possible. For a single rank it is loopback.
func (s *Session) LocalAddr() netip.Addr { return s.local }

// Exchange gives every rank the blobs of all ranks, in rank order. All ranks call it equally often. A blob
// has at most MaxBlob bytes. The caller owns the result.
//
// An error, including the end of ctx, breaks the session, and later calls return it again. An *Error names a
// rank that failed, or the ranks that were late when the context of another rank ended.
func (s *Session) Exchange(ctx context.Context, blob []byte) ([][]byte, error) {
	if len(blob) > MaxBlob {
		return nil, fmt.Errorf("rendezvous: blob of %d bytes, at most %d are allowed", len(blob), MaxBlob)
	}
	select {
	case <-s.closed: // takes precedence over other events
		return nil, fmt.Errorf("rendezvous: %w", ErrClosed)
	default:
	}
	select {
	case <-s.turn:
	default:
		select {
		case <-s.turn:
		case <-s.closed:
			return nil, fmt.Errorf("rendezvous: %w", ErrClosed)
		case <-ctx.Done():
			return nil, context.Cause(ctx) // another call holds the token
		}
	}
	defer func() { s.turn <- struct{}{} }()
	if s.err != nil {
		return nil, s.err
	}
	s.seq++
	all, err := s.star.exchange(ctx, s.seq, blob)
	s.err = err
	return all, err
}

// Close leaves the session. The other ranks notice at their next Exchange. Close may be called at any time
// and more than once.
func (s *Session) Close() error {
	s.closing.Do(func() {
		close(s.closed)
		s.star.close()
	})
	return nil
}

// solo is a world of one rank.
type solo struct{}

func (solo) exchange(_ context.Context, _ uint32, blob []byte) ([][]byte, error) {
	return [][]byte{slices.Clone(blob)}, nil
}

func (solo) localAddr() netip.Addr { return netip.AddrFrom4([4]byte{127, 0, 0, 1}) }
func (solo) close()                {}

func addrOf(a net.Addr) netip.Addr {
	t, ok := a.(*net.TCPAddr)
	if !ok {
		return netip.Addr{}
	}
	return t.AddrPort().Addr().Unmap()
}
