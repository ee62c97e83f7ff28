// Package fabrictest checks that a network keeps the contract of package fabric. The tests of each
// network run it; every byte that arrives is verified.
package fabrictest

import (
	"testing"

	"github.com/allcast/allcast/internal/fabric"
)

// A Network opens the ranks of a network for tests. Cleanup functions of the test close them.
type Network struct {
	// Multicast opens the unreliable side of some ranks, with two subgroups.
	Multicast func(t *testing.T, ranks int) []fabric.Multicast
	// Uneven says that Send does not check whether the payloads of a batch have the same length.
	Uneven bool
	// Foreign sends datagrams of 0 to wire.HeaderSize-1 bytes, one of each length, to the first
	// subgroup of ranks that Multicast opened. nil: the network cannot carry such datagrams.
	Foreign func(t *testing.T, ranks []fabric.Multicast)
	// Reliable opens the reliable side of one rank per handler. The handler of rank 0 may keep all
	// buffers, which must not stop other ranks.
	Reliable func(t *testing.T, handlers []fabric.Handler) *World
}

// A World is the reliable side of some ranks.
type World struct {
	Ranks []fabric.Reliable
	Kill  func(rank int) // ends a rank without a goodbye, as a crash does
}

// Test runs the whole suite.
func Test(t *testing.T, n Network) {
	t.Helper()
	t.Run("multicast", func(t *testing.T) { TestMulticast(t, n) })
	t.Run("reliable", func(t *testing.T) { TestReliable(t, n) })
}

// A test checks one part of the contract.
type test struct {
	name string
	run  func(*testing.T, Network)
}

func (n Network) run(t *testing.T, tests []test) {
	t.Helper()
	for _, c := range tests {
		t.Run(c.name, func(t *testing.T) { c.run(t, n) })
	}
}

// fill returns n bytes that differ by seed and position.
func fill(n int, seed byte) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = seed + byte(i) ^ byte(i>>8) ^ byte(i>>16)
	}
	return b
}
