//go:build !purego

package seal

import (
	"hash/crc32"

	"golang.org/x/sys/cpu"
)

// folds enables the assembly for checksums. Package cpu reports AVX-512 only if the system saves its
// registers, too.
var folds = cpu.X86.HasSSE42 && cpu.X86.HasAVX512F && cpu.X86.HasAVX512VPCLMULQDQ

const (
	foldVector = 64 // bytes
	// foldPart limits the time in assembly, which the scheduler cannot preempt, to some tens of
	// microseconds: a garbage collection would have to wait.
	foldPart = 256 << 10
)

// fold continues a CRC32C over b. A CRC is the remainder of a division of polynomials. A vector may
// therefore be replaced by its product with a remainder of x^n, n bits later in the text. So each vector is
// added to a later one, until one is left, which has the same remainder as the text.
func fold(sum uint32, b []byte) uint32 {
	for len(b) >= minFold {
		n := min(len(b), foldPart) / foldVector
		sum = ^foldSum(^sum, &b[0], n)
		b = b[n*foldVector:]
	}
	return crc32.Update(sum, castagnoli, b)
}

// foldSum returns the register of a CRC32C after some vectors, at least four.
//
//go:noescape
func foldSum(register uint32, p *byte, vectors int) uint32

// wordsSum returns the register of a CRC32C after two words.
func wordsSum(register uint32, a, b uint64) uint32
