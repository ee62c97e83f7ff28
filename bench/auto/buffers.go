//go:build linux

package main

import (
	"encoding/binary"
	"fmt"

	"github.com/allcast/allcast"
)

// buffers are the buffers of one rank for an operation. Each has room for one block per rank.
type buffers struct {
	n          int64
	send, recv []byte
	result     []byte            // part of recv that the operation writes
	expected   func(at int) byte // byte of result at an index
}

// newBuffers fills the buffers: each byte that a rank contributes is its number, counted from 1.
func newBuffers(c *allcast.Comm, operation string, n int64) *buffers {
	blocks := int64(1)
	switch operation {
	case "reduce-scatter", "allreduce":
		n = (n + 3) &^ 3 // whole elements
	}
	if operation != "broadcast" && operation != "allreduce" {
		blocks = int64(c.Size())
	}
	b := &buffers{n: n, send: make([]byte, blocks*n), recv: make([]byte, blocks*n)}
	for i := range b.send {
		b.send[i] = byte(c.Rank() + 1)
	}
	sum := make([]byte, 4)
	binary.NativeEndian.PutUint32(sum, uint32(c.Size()*(c.Size()+1)/2)*0x01010101)
	switch operation {
	case "broadcast":
		b.result, b.expected = b.recv, func(int) byte { return 1 }
		if c.Rank() == 0 {
			copy(b.recv, b.send)
		}
	case "allgather", "alltoall":
		b.result, b.expected = b.recv, func(at int) byte { return byte(int64(at)/n + 1) }
	case "reduce-scatter", "allreduce":
		b.result, b.expected = b.recv[:n], func(at int) byte { return sum[at%4] }
	}
	return b
}

// check verifies the result, and clears it for the next call.
func (b *buffers) check(c *allcast.Comm) error {
	for i, got := range b.result {
		if want := b.expected(i); got != want {
			return fmt.Errorf("byte %d of the result on rank %d is %d, want %d", i, c.Rank(), got, want)
		}
	}
	if c.Rank() > 0 || len(b.send) != len(b.result) || b.result[0] != b.send[0] { // the root of a Broadcast keeps its data
		clear(b.result)
	}
	return nil
}

// starters start the operations.
var starters = map[string]func(*allcast.Comm, *buffers, ...allcast.CallOption) (*allcast.Request, error){
	"broadcast": func(c *allcast.Comm, b *buffers, o ...allcast.CallOption) (*allcast.Request, error) {
		return c.StartBroadcast(b.recv, 0, o...)
	},
	"allgather": func(c *allcast.Comm, b *buffers, o ...allcast.CallOption) (*allcast.Request, error) {
		return c.StartAllgather(b.send[:b.n], b.recv, o...)
	},
	"reduce-scatter": func(c *allcast.Comm, b *buffers, o ...allcast.CallOption) (*allcast.Request, error) {
		return c.StartReduceScatter(b.send, b.result, allcast.Int32, allcast.Sum, o...)
	},
	"allreduce": func(c *allcast.Comm, b *buffers, o ...allcast.CallOption) (*allcast.Request, error) {
		return c.StartAllreduce(b.send, b.recv, allcast.Int32, allcast.Sum, o...)
	},
	"alltoall": func(c *allcast.Comm, b *buffers, o ...allcast.CallOption) (*allcast.Request, error) {
		return c.StartAlltoall(b.send, b.recv, o...)
	},
}
