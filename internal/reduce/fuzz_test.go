package reduce

import (
	"bytes"
	"slices"
	"testing"
)

// FuzzInto tries any bytes, type, operation and alignment. Into must not panic, must return an error
// exactly for invalid input, and must give the same bytes on all paths. The same holds for Finish.
func FuzzInto(f *testing.F) {
	for _, t := range allTypes() {
		for _, op := range opsOf(t) {
			f.Add(bytes.Repeat([]byte{0, 0x3c, 0xff, 0x7f, 1, 0, 0, 0x80}, 9), uint8(t), uint8(op), uint8(t), uint8(0), 3)
		}
	}
	f.Add([]byte{1, 2, 3}, uint8(F32), uint8(Sum), uint8(1), uint8(0), 1)
	f.Add([]byte{}, uint8(200), uint8(200), uint8(0), uint8(1), -1)
	f.Fuzz(func(t *testing.T, data []byte, typ, op, offset, longer uint8, ranks int) {
		half := len(data) / 2
		before := data[:half]
		src := slices.Clone(data[half:][:max(0, half-int(longer%2))])
		valid := typ > 0 && typ < numTypes && slices.Contains(opsOf(Type(typ)), Op(op)) &&
			len(src) == half && half%Type(typ).Size() == 0
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

// FuzzScale tries any bytes, type, factor and alignment. Scale must return an error exactly for invalid
// input, and must give the same bytes on all paths, in place or not.
func FuzzScale(f *testing.F) {
	for _, t := range allTypes() {
		f.Add(bytes.Repeat([]byte{0, 0x3c, 0xff, 0x7f, 1, 0, 0, 0x80}, 9), uint8(t), uint8(t), 0.3)
	}
	f.Add([]byte{1, 2, 3}, uint8(F32), uint8(1), 1.)
	f.Add([]byte{}, uint8(0), uint8(200), -1.)
	f.Fuzz(func(t *testing.T, src []byte, typ, offset uint8, factor float64) {
		valid := typ > 0 && typ <= uint8(BF16) && len(src)%Type(typ).Size() == 0
		var want []byte
		for i, path := range paths() {
			dst := make([]byte, int(offset%64)+len(src))[offset%64:]
			same := slices.Clone(src)
			var errs [2]error
			on(path, func() {
				errs = [2]error{Scale(dst, src, Type(typ), factor), Scale(same, same, Type(typ), factor)}
			})
			if (errs[0] == nil) != valid || (errs[1] == nil) != valid {
				t.Fatalf("%s: %d bytes of %v: %v", path, len(src), Type(typ), errs)
			}
			if i == 0 {
				want = dst
			}
			if !bytes.Equal(dst, want) || valid && !bytes.Equal(same, want) {
				t.Fatalf("%v times %v: %s gives\n%x, in place\n%x, %s gives\n%x",
					Type(typ), factor, path, dst, same, paths()[0], want)
			}
		}
	})
}

// FuzzHalves compares the conversions of all paths. A value that Round returned survives both conversions.
func FuzzHalves(f *testing.F) {
	f.Add(bytes.Repeat([]byte{0, 0x3c, 0xff, 0x7f, 1, 0, 0, 0x80}, 9), true)
	f.Add(bytes.Repeat([]byte{0x80, 0x7f, 0, 1}, 13), false)
	f.Fuzz(func(t *testing.T, data []byte, bf16 bool) {
		typ := F16
		if bf16 {
			typ = BF16
		}
		src := data[:len(data)/2*2]
		var want []byte
		for i, path := range paths() {
			wide, dst, again := make([]float32, len(src)/2), make([]byte, len(src)), make([]byte, len(src))
			on(path, func() {
				Widen(wide, src, typ)
				Round(dst, wide, typ)
				Widen(wide, dst, typ)
				Round(again, wide, typ)
			})
			if i == 0 {
				want = dst
			}
			if !bytes.Equal(dst, want) || !bytes.Equal(again, want) {
				t.Fatalf("%v: %s gives\n%x, then\n%x, %s gives\n%x", typ, path, dst, again, paths()[0], want)
			}
		}
	})
}
