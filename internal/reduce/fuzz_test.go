package reduce

import (
	"bytes"
	"slices"
	"testing"
)

// FuzzInto tries any bytes, type, operation and alignment. Into must not panic, must return an error
// exactly for invalid input, and must give the same bytes on all paths. The same holds for Finish.
func FuzzInto(f *testing.F) {
	for t := range numTypes {
		f.Add(bytes.Repeat([]byte{0, 0x3c, 0xff, 0x7f, 1, 0, 0, 0x80}, 9), uint8(t), uint8(t%numOps), uint8(t), uint8(0), 3)
	}
	f.Add([]byte{1, 2, 3}, uint8(F32), uint8(Sum), uint8(1), uint8(0), 1)
	f.Add([]byte{}, uint8(200), uint8(200), uint8(0), uint8(1), -1)
	f.Fuzz(func(t *testing.T, data []byte, typ, op, offset, longer uint8, ranks int) {
		half := len(data) / 2
		before := data[:half]
		src := slices.Clone(data[half:][:max(0, half-int(longer%2))])
		valid := typ < numTypes && op < numOps && len(src) == half && half%Type(typ).Size() == 0
		var want []byte
		for i, path := range paths() {
			room := make([]byte, int(offset%64)+half)
			dst := room[offset%64:]
			copy(dst, before)
			var err, finished error
			on(path, func() {
				err = Into(dst, src, Type(typ), Op(op))
				finished = Finish(dst, Type(typ), Op(op), ranks)
			})
			if (err == nil) != valid {
				t.Fatalf("%s: %d bytes into %d, %v, %v: %v", path, len(src), half, Type(typ), Op(op), err)
			}
			if finished == nil && ranks < 1 {
				t.Fatalf("%s: %d operands are no error", path, ranks)
			}
			if err != nil && finished != nil && !bytes.Equal(dst, before) {
				t.Fatalf("%s: errors (%v; %v), but dst changed", path, err, finished)
			}
			if i == 0 {
				want = dst
			}
			if !bytes.Equal(dst, want) {
				t.Fatalf("%v %v: %s gives\n%x, %s gives\n%x", Type(typ), Op(op), path, dst, paths()[0], want)
			}
		}
	})
}

// FuzzAccumulate does the same for an f32 accumulator.
func FuzzAccumulate(f *testing.F) {
	f.Add(bytes.Repeat([]byte{0, 0x3c, 0xff, 0x7f, 1, 0, 0, 0x80}, 9), true, uint8(Sum))
	f.Add(bytes.Repeat([]byte{0x80, 0x7f, 0, 1}, 13), false, uint8(Max))
	f.Fuzz(func(t *testing.T, data []byte, bf16 bool, op uint8) {
		typ := F16
		if bf16 {
			typ = BF16
		}
		src := data[:len(data)/4*2]
		more := data[len(src):][:len(src)]
		var want []byte
		for i, path := range paths() {
			acc, dst := make([]float32, len(src)/2), make([]byte, len(src))
			on(path, func() {
				Widen(acc, src, typ)
				Accumulate(acc, more, typ, Op(op%numOps))
				Round(dst, acc, typ)
			})
			if i == 0 {
				want = dst
			}
			if !bytes.Equal(dst, want) {
				t.Fatalf("%v %v: %s gives\n%x, %s gives\n%x", typ, Op(op%numOps), path, dst, paths()[0], want)
			}
		}
	})
}
