package reduce

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"testing"
	"time"
)

// Sizes of a chunk train, of a segment in L2, and of a buffer larger than L2.
var benchSizes = []int{64 << 10, 1 << 20, 16 << 20}

func sizeName(n int) string {
	if n < 1<<20 {
		return fmt.Sprintf("%dKiB", n>>10)
	}
	return fmt.Sprintf("%dMiB", n>>20)
}

// BenchmarkCopy is the baseline of BenchmarkF32Sum.
func BenchmarkCopy(b *testing.B) {
	for _, size := range benchSizes {
		b.Run(sizeName(size), func(b *testing.B) {
			dst, src := benchBuffers(size, F32)
			b.SetBytes(int64(size))
			for b.Loop() {
				copy(dst, src)
			}
		})
	}
}

// BenchmarkF32SumOverCopy alternates between sum and copy, so that a busy machine disturbs both. It
// reports the median of the ratio of their rates.
func BenchmarkF32SumOverCopy(b *testing.B) {
	for _, size := range benchSizes {
		b.Run(sizeName(size), func(b *testing.B) {
			dst, src := benchBuffers(size, F32)
			to, from := benchBuffers(size, F32)
			var ratios []float64
			for b.Loop() {
				start := time.Now()
				for range 1<<20/size + 1 {
					copy(to, from)
				}
				middle := time.Now()
				for range 1<<20/size + 1 {
					_ = Into(dst, src, F32, Sum)
				}
				ratios = append(ratios, float64(middle.Sub(start))/float64(time.Since(middle)))
			}
			slices.Sort(ratios)
			b.ReportMetric(ratios[len(ratios)/2], "of-copy")
		})
	}
}

func BenchmarkF32Sum(b *testing.B) {
	for _, size := range benchSizes {
		b.Run(sizeName(size), func(b *testing.B) { benchInto(b, size, F32, Sum) })
	}
}

// BenchmarkInto measures every kernel on a buffer in L2.
func BenchmarkInto(b *testing.B) {
	for _, t := range allTypes() {
		for _, op := range opsOf(t) {
			b.Run(t.String()+"/"+op.String(), func(b *testing.B) { benchInto(b, 64<<10, t, op) })
		}
	}
}

// BenchmarkGo measures the portable path.
func BenchmarkGo(b *testing.B) {
	defer func(was bool) { simd = was }(simd)
	simd = false
	for _, t := range allTypes() {
		for _, op := range opsOf(t) {
			b.Run(t.String()+"/"+op.String(), func(b *testing.B) { benchInto(b, 64<<10, t, op) })
		}
	}
}

func BenchmarkUnaligned(b *testing.B) {
	dst, src := benchBuffers(64<<10+8, F32)
	for _, path := range []string{"go", Path()} {
		b.Run(path+"/f32", func(b *testing.B) {
			defer func(was bool) { simd = was }(simd)
			simd = path != "go"
			b.SetBytes(64 << 10)
			for b.Loop() {
				_ = Into(dst[1:][:64<<10], src[3:][:64<<10], F32, Sum)
			}
		})
	}
}

func BenchmarkSmall(b *testing.B) {
	for _, size := range []int{4, 28, 32, 60, 256, 4096} {
		b.Run(fmt.Sprint(size), func(b *testing.B) { benchInto(b, size, F32, Sum) })
	}
}

func BenchmarkFinish(b *testing.B) {
	for t := F32; t <= U64; t++ {
		b.Run(t.String(), func(b *testing.B) {
			buf, _ := benchBuffers(64<<10, t)
			b.SetBytes(int64(len(buf)))
			for b.Loop() {
				_ = Finish(buf, t, Avg, 1) // other numbers would end in denormals
			}
		})
	}
}

func BenchmarkScale(b *testing.B) {
	for t := F32; t <= BF16; t++ {
		b.Run(t.String(), func(b *testing.B) {
			buf, _ := benchBuffers(64<<10, t)
			b.SetBytes(int64(len(buf)))
			for b.Loop() {
				_ = Scale(buf, buf, t, 1)
			}
		})
	}
}

// BenchmarkConvert counts the bytes of the half-precision side.
func BenchmarkConvert(b *testing.B) {
	half, _ := benchBuffers(64<<10, F16)
	wide := make([]float32, len(half)/2)
	for _, t := range halves {
		for name, convert := range map[string]func(){
			"widen": func() { Widen(wide, half, t) },
			"round": func() { Round(half, wide, t) },
		} {
			b.Run(t.String()+"/"+name, func(b *testing.B) {
				b.SetBytes(int64(len(half)))
				for b.Loop() {
					convert()
				}
			})
		}
	}
}

func benchInto(b *testing.B, size int, t Type, op Op) {
	b.Helper()
	dst, src := benchBuffers(size, t)
	b.SetBytes(int64(size))
	b.ReportAllocs()
	for b.Loop() {
		if err := Into(dst, src, t, op); err != nil {
			b.Fatal(err)
		}
	}
}

// benchBuffers returns buffers of ones. Ones can be added or multiplied for long without denormals and
// infinities, which would measure the processor's exceptions. The buffers must be written: all pages
// that were never written share one page of zeros, and a copy from that page runs out of L1.
func benchBuffers(size int, t Type) (dst, src []byte) {
	dst, src = make([]byte, size), make([]byte, size)
	for i := range size / t.Size() {
		setElement(dst, t, i, 1)
		setElement(src, t, i, 1)
	}
	return dst, src
}

// setElement does not use the package's own conversions.
func setElement(b []byte, t Type, i int, x float64) {
	b = b[i*t.Size():]
	switch t {
	case F32:
		binary.LittleEndian.PutUint32(b, math.Float32bits(float32(x)))
	case F64:
		binary.LittleEndian.PutUint64(b, math.Float64bits(x))
	case F16:
		binary.LittleEndian.PutUint16(b, 0x3c00)
	case BF16:
		binary.LittleEndian.PutUint16(b, 0x3f80)
	default:
		b[0] = byte(x)
	}
}
