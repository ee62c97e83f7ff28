package fabric

import "github.com/allcast/allcast/internal/wire"

// ChunkFunc is a Sink that reserves no memory: it takes every datagram in Chunk.
type ChunkFunc func(h wire.Header, payload []byte)

// Expect implements Sink.
func (ChunkFunc) Expect([][]byte) int { return 0 }

// Arrived implements Sink.
func (ChunkFunc) Arrived([]wire.Header) int { return 0 }

// Chunk implements Sink.
func (f ChunkFunc) Chunk(h wire.Header, payload []byte) { f(h, payload) }

// Idle implements Sink.
func (ChunkFunc) Idle() {}
