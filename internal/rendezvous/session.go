package rendezvous

import (
	"context"
	"crypto/rand"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
)

// A Session connects this rank with all ranks that joined.
type Session struct {
	seed  [seedSize]byte
	node  node
	size  int
	local netip.Addr
	meter *meter

	mu  sync.Mutex // held by Exchange
	seq uint32
	err error // reason why the session is broken

	closed atomic.Bool
}

// node is a rank's part of the connections: a hub or a branch.
type node interface {
	exchange(ctx context.Context, seq uint32, blob []byte, fold func([][]byte) []byte) ([]byte, error)
	localAddr() netip.Addr
	close() // makes exchange return ErrClosed; idempotent
}

func newSeed() (seed [seedSize]byte) {
	_, _ = rand.Read(seed[:]) // a failure would end the process
	return seed
}

func newSession(n node, seed [seedSize]byte, cfg Config) *Session {
	local := cfg.Local
	if cfg.Store == nil {
		local = n.localAddr()
	}
	return &Session{seed: seed, node: n, size: cfg.Size, local: local, meter: cfg.meter}
}

// Seed returns random bytes that rank 0 has drawn in Join, the same on all ranks.
func (s *Session) Seed() [32]byte { return s.seed }

// LocalAddr returns this rank's address on its connection to rank 0. On rank 0 it is an address that other
// ranks use, not of loopback if possible. For a single rank it is loopback. If the ranks met through a store, it is
// Config.Local.
func (s *Session) LocalAddr() netip.Addr { return s.local }

// Traffic returns the bytes that this rank has sent and received so far.
func (s *Session) Traffic() Traffic { return s.meter.read() }

// Exchange gives every rank the blobs of all ranks, in rank order. All ranks call it equally often. A blob
// has at most MaxBlob bytes. The caller owns the result.
//
// An error, including the end of ctx, breaks the session, and later calls return it again. An *Error names a
// rank that failed, or the ranks that were late when the context of another rank ended.
func (s *Session) Exchange(ctx context.Context, blob []byte) ([][]byte, error) {
	p, err := s.Fold(ctx, blob, joinBlobs)
	if err != nil {
		return nil, err
	}
	blobs, err := splitBlobs(p, s.size)
	if err != nil {
		_ = s.Close()
	}
	return blobs, err
}

// Fold is an Exchange in which rank 0 makes one result out of the blobs of all ranks, in rank order, and all ranks
// get that result. It has at most 4+MaxBlob bytes per rank. Only rank 0 calls fold, which must not keep the blobs.
func (s *Session) Fold(ctx context.Context, blob []byte, fold func(blobs [][]byte) []byte) ([]byte, error) {
	if len(blob) > MaxBlob {
		return nil, fmt.Errorf("rendezvous: blob of %d bytes, at most %d are allowed", len(blob), MaxBlob)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed.Load(): // takes precedence over other errors
		return nil, fmt.Errorf("rendezvous: %w", ErrClosed)
	case s.err != nil:
		return nil, s.err
	}
	s.seq++
	result, err := s.node.exchange(ctx, s.seq, blob, fold)
	s.err = err
	return result, err
}

// Close leaves the session. The other ranks notice at their next Exchange. Close may be called at any time
// and more than once.
func (s *Session) Close() error {
	s.closed.Store(true)
	s.node.close()
	return nil
}

func addrOf(a net.Addr) netip.Addr {
	t, ok := a.(*net.TCPAddr)
	if !ok {
		return netip.Addr{}
	}
	return t.AddrPort().Addr().Unmap()
}
