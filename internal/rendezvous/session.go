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

// A Session is a rank's place among all ranks that joined.
type Session struct {
	seed  [seedSize]byte
	star  star
	local netip.Addr

	turn chan struct{} // holds a token: one Exchange at a time
	seq  uint32
	err  error // why the session is broken; with the token

	closing sync.Once
	closed  chan struct{}
}

// star is a rank's part of the connections: rank 0's, another rank's, or none.
type star interface {
	exchange(ctx context.Context, seq uint32, blob []byte) ([][]byte, error)
	localAddr() netip.Addr
	close() // makes exchange return ErrClosed
}

func newSeed() (seed [seedSize]byte) {
	_, _ = rand.Read(seed[:]) // never fails: it would end the process
	return seed
}

func newSession(st star, seed [seedSize]byte) *Session {
	s := &Session{seed: seed, star: st, local: st.localAddr(), turn: make(chan struct{}, 1), closed: make(chan struct{})}
	s.turn <- struct{}{}
	return s
}

// Seed is random, drawn by rank 0 in Join, and the same on all ranks.
func (s *Session) Seed() [32]byte { return s.seed }

// LocalAddr is the address of this rank on its way to rank 0; on rank 0 the
// address that others used, one off loopback if there is any. A rank that is
// alone says loopback.
func (s *Session) LocalAddr() netip.Addr { return s.local }

// Exchange gives every rank the blobs of all ranks, in rank order. All ranks call
// it the same number of times; a blob has at most MaxBlob bytes. The result is
// the caller's.
//
// An error, also that of a context that ends, breaks the session: a later
// Exchange returns it again. It is a
// *RankError naming a rank that failed, or a *MissingError naming the ranks that
// others stopped waiting for when their context ended.
func (s *Session) Exchange(ctx context.Context, blob []byte) ([][]byte, error) {
	if len(blob) > MaxBlob {
		return nil, fmt.Errorf("rendezvous: blob of %d bytes, at most %d are allowed", len(blob), MaxBlob)
	}
	select {
	case <-s.closed: // for sure, whatever else is ready
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
			return nil, context.Cause(ctx) // it was not this call's turn
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

// Close leaves. The others learn of it at their next Exchange. Close may be
// called at any time and more than once.
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
