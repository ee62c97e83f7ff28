package allcast

import (
	"context"
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"math"
	"slices"
	"sync"

	"github.com/allcast/allcast/internal/engine"
	"github.com/allcast/allcast/internal/wire"
)

// Many small buffers cost many operations. A coalesced operation packs them into one block, at the cost of a copy
// on each side. Each rank's block begins with a digest of the sizes, so that a rank with other sizes fails
// instead of getting scrambled data.

const digestSize = 8

// staging holds memory for coalesced operations.
var staging sync.Pool

func stagingBuffer(n int) *[]byte {
	if b, ok := staging.Get().(*[]byte); ok && cap(*b) >= n {
		*b = (*b)[:n]
		return b
	}
	b := make([]byte, n)
	return &b
}

// layout returns the digest of the sizes of buffers, and the size of a block that holds them. It fails if
// blocks of all ranks are too large for one buffer.
func layout(bufs [][]byte, blocks int) (digest uint64, block int, err error) {
	h := fnv.New64a()
	var n [8]byte
	block = digestSize
	for _, b := range bufs {
		binary.LittleEndian.PutUint64(n[:], uint64(len(b)))
		h.Write(n[:])
		if len(b) > math.MaxInt/blocks-block {
			return 0, 0, invalid("%d buffers are too large for one operation", len(bufs))
		}
		block += len(b)
	}
	return h.Sum64(), block, nil
}

// pack fills a block.
func pack(block []byte, digest uint64, bufs [][]byte) {
	binary.LittleEndian.PutUint64(block, digest)
	at := digestSize
	for _, b := range bufs {
		at += copy(block[at:], b)
	}
}

// checkDigest compares the sizes of a rank with those of this rank.
func (c *Comm) checkDigest(block []byte, digest uint64, rank int) error {
	if binary.LittleEndian.Uint64(block) == digest {
		return nil
	}
	return fmt.Errorf("coalesced operation: %w: the buffers of %s have other sizes than those of this rank",
		ErrMismatch, rankName(c.members[rank], c.members))
}

// StartBroadcastCoalesced starts a BroadcastCoalesced.
func (c *Comm) StartBroadcastCoalesced(bufs [][]byte, root int, opts ...CallOption) (*Request, error) {
	if c == nil {
		return nil, invalid("a nil communicator")
	}
	digest, n, err := layout(bufs, 1)
	if err != nil {
		return nil, err
	}
	bufs = slices.Clone(bufs) // the list is the caller's
	stage := stagingBuffer(n)
	block := *stage
	if c.rank == root {
		pack(block, digest, bufs)
	}
	k := engine.Call{Kind: wire.Broadcast, Root: root, Recv: block, Uses: bufs}
	k.Finish = func() error {
		defer staging.Put(stage)
		if c.rank == root {
			return nil
		}
		if err := c.checkDigest(block, digest, root); err != nil {
			return err
		}
		at := digestSize
		for _, b := range bufs {
			at += copy(b, block[at:])
		}
		return nil
	}
	return c.start(k, int64(n), opts)
}

// BroadcastCoalesced broadcasts many buffers as one operation, which is much faster than one Broadcast per buffer if
// they are small. All ranks pass the same number of buffers, with the same sizes. A rank whose sizes differ from
// those of the root fails with ErrMismatch.
func (c *Comm) BroadcastCoalesced(ctx context.Context, bufs [][]byte, root int, opts ...CallOption) error {
	return c.block(ctx, "broadcast", func() (*Request, error) { return c.StartBroadcastCoalesced(bufs, root, opts...) })
}

// StartAllgatherCoalesced starts an AllgatherCoalesced.
func (c *Comm) StartAllgatherCoalesced(sends, recvs [][]byte, opts ...CallOption) (*Request, error) {
	if c == nil {
		return nil, invalid("a nil communicator")
	}
	if len(sends) != len(recvs) {
		return nil, invalid("%d send buffers and %d receive buffers", len(sends), len(recvs))
	}
	size := len(c.members)
	for i := range sends {
		if int64(len(recvs[i])) != int64(size)*int64(len(sends[i])) {
			return nil, invalid("send buffer %d has %d bytes and its receive buffer %d: the second must be %d times as long",
				i, len(sends[i]), len(recvs[i]), size)
		}
	}
	digest, n, err := layout(sends, size)
	if err != nil {
		return nil, err
	}
	sends, recvs = slices.Clone(sends), slices.Clone(recvs) // the lists are the caller's
	stage := stagingBuffer(n * size)
	all := *stage
	pack(all[c.rank*n:], digest, sends)
	k := engine.Call{Kind: wire.Allgather, Recv: all, Counts: c.equalBlocks(n), Uses: recvs}
	k.Finish = func() error {
		defer staging.Put(stage)
		for r := range size {
			block := all[r*n : (r+1)*n]
			if err := c.checkDigest(block, digest, r); err != nil {
				return err
			}
			at := digestSize
			for i, s := range sends {
				at += copy(recvs[i][r*len(s):(r+1)*len(s)], block[at:])
			}
		}
		return nil
	}
	return c.start(k, int64(n), opts)
}

// AllgatherCoalesced is one Allgather per pair of sends and recvs, as one operation, which is much faster if the
// buffers are small. All ranks pass the same number of buffers, with the same sizes; otherwise the call fails with
// ErrMismatch. A send buffer may be this rank's block of its receive buffer, but not nil.
func (c *Comm) AllgatherCoalesced(ctx context.Context, sends, recvs [][]byte, opts ...CallOption) error {
	return c.block(ctx, "allgather", func() (*Request, error) { return c.StartAllgatherCoalesced(sends, recvs, opts...) })
}
