// Package calltest makes collective calls with known data and compares every byte of the results.
package calltest

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math/rand/v2"
)

// Pattern returns the n bytes that a rank contributes to the operation with that seed.
func Pattern(seed uint64, rank, n int) []byte {
	b := make([]byte, n+8)
	r := rand.NewPCG(seed, uint64(rank))
	for i := 0; i < n; i += 8 {
		binary.LittleEndian.PutUint64(b[i:], r.Uint64())
	}
	return b[:n:n]
}

// Gathered returns the patterns of all ranks, one after the other.
func Gathered(seed uint64, size, n int) []byte {
	var all []byte
	for r := range size {
		all = append(all, Pattern(seed, r, n)...)
	}
	return all
}

// Numbers returns n numbers that a rank contributes. Their sums over a few ranks are exact, so every
// order of summation gives the same result.
func Numbers(seed uint64, rank, n int) []float32 {
	b := Pattern(seed, rank, 2*n)
	f := make([]float32, n)
	for i := range f {
		f[i] = float32(int16(binary.LittleEndian.Uint16(b[2*i:])))
	}
	return f
}

// Sum returns the sum of the numbers of all ranks.
func Sum(seed uint64, size, n int) []float32 {
	sum := make([]float32, n)
	for r := range size {
		for i, x := range Numbers(seed, r, n) {
			sum[i] += x
		}
	}
	return sum
}

// Equal returns err, or an error if got differs from want.
func Equal(err error, got, want []byte) error {
	if err == nil && !bytes.Equal(got, want) {
		return errors.New("wrong data")
	}
	return err
}
