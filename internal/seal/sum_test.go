package seal

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"testing"
)

// sums are the implementations of Sum that this processor can run.
func sums() map[string]func(uint32, []byte) uint32 {
	m := map[string]func(uint32, []byte) uint32{"Sum": Sum, "pull": pull}
	if folds {
		m["fold"] = fold
	}
	return m
}

func random(n int) []byte {
	b := make([]byte, n)
	r := rand.NewChaCha8([32]byte{byte(n)})
	_, _ = r.Read(b) // never fails
	return b
}

func TestSumEqualsCRC32C(t *testing.T) {
	table := crc32.MakeTable(crc32.Castagnoli)
	mem := random(600_000)
	check := func(at, n int) {
		b := mem[at:][:n]
		before := uint32(at*n) * 0x9e3779b9
		want := crc32.Update(before, table, b)
		for name, sum := range sums() {
			if got := sum(before, b); got != want {
				t.Fatalf("%s of %d bytes at %d is %#x, not %#x", name, n, at, got, want)
			}
		}
	}
	for n := range 1400 {
		for at := 0; at < 64; at += 1 + n%7 {
			check(at, n)
		}
	}
	for _, n := range []int{8192, 8952, 65_519, 256 << 10, 256<<10 + 255, 256<<10 + 512, 599_000} {
		check(n%61, n)
	}
	for name, sum := range sums() {
		if got, want := sum(7, nil), crc32.Update(7, table, nil); got != want {
			t.Errorf("%s of nothing is %#x, not %#x", name, got, want)
		}
	}
}

func TestSumWords(t *testing.T) {
	table := crc32.MakeTable(crc32.Castagnoli)
	mem := random(100)
	for i := range len(mem) - 16 {
		a, b := binary.LittleEndian.Uint64(mem[i:]), binary.LittleEndian.Uint64(mem[i+8:])
		before := uint32(i) * 0x9e3779b9
		if got, want := SumWords(before, a, b), crc32.Update(before, table, mem[i:i+16]); got != want {
			t.Fatalf("at %d: %#x, not %#x", i, got, want)
		}
	}
}

func FuzzSum(f *testing.F) {
	f.Add(uint32(0), []byte("a"))
	f.Add(^uint32(0), random(1500))
	table := crc32.MakeTable(crc32.Castagnoli)
	f.Fuzz(func(t *testing.T, before uint32, b []byte) {
		want := crc32.Update(before, table, b)
		for name, sum := range sums() {
			if got := sum(before, b); got != want {
				t.Errorf("%s of %d bytes is %#x, not %#x", name, len(b), got, want)
			}
		}
	})
}

func BenchmarkSum(b *testing.B) {
	mem := random(64 << 20)
	for name, sum := range sums() {
		for _, n := range []int{1024, 8952, 64 << 10, 64 << 20} {
			b.Run(fmt.Sprintf("%s/%d", name, n), func(b *testing.B) {
				b.SetBytes(int64(n))
				for range b.N {
					sum(0, mem[:n])
				}
			})
		}
	}
}
