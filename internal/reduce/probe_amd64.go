//go:build !purego

package reduce

// probe reports whether the processor has AVX2 and F16C, and whether the kernel saves their registers
// (Intel's manual, volume 1, 14.3 to 14.7).
func probe() bool {
	const (
		f16c    = 1 << 29 // leaf 1, ECX
		avx     = 1 << 28
		osxsave = 1 << 27
		avx2    = 1 << 5 // leaf 7, EBX
		xmmYmm  = 1<<1 | 1<<2
	)
	if top, _, _, _ := cpuid(0, 0); top < 7 {
		return false
	}
	const need = f16c | avx | osxsave
	if _, _, ecx, _ := cpuid(1, 0); ecx&need != need {
		return false
	}
	if eax, _ := xgetbv(); eax&xmmYmm != xmmYmm {
		return false
	}
	_, ebx, _, _ := cpuid(7, 0)
	return ebx&avx2 != 0
}

func cpuid(leaf, sub uint32) (eax, ebx, ecx, edx uint32)

func xgetbv() (eax, edx uint32)
