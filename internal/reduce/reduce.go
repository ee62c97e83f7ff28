package reduce

import (
	"errors"
	"fmt"
)

// Errors that calls return.
var (
	ErrType  = errors.New("reduce: unknown element type")
	ErrOp    = errors.New("reduce: unknown operation")
	ErrSize  = errors.New("reduce: wrong buffer size")
	ErrRanks = errors.New("reduce: wrong number of operands")
)

// Into sets dst[i] to dst[i] op src[i] for every element. Both buffers have the same length, a multiple
// of the element size. They must not overlap, unless they are the same memory. dst is unchanged after an
// error.
func Into(dst, src []byte, t Type, op Op) error {
	if err := check(dst, t, op); err != nil {
		return err
	}
	if len(dst) != len(src) {
		return fmt.Errorf("%w: %d bytes into %d", ErrSize, len(src), len(dst))
	}
	if !simdInto(dst, src, t, op) {
		goInto(dst, src, t, op)
	}
	return nil
}

// Finish turns the accumulated value of n operands into the result. Avg divides every element by n.
// Floats are divided in f32 (F64 in f64) with n rounded to that type; F16 and BF16 results are rounded
// once more. Integers are truncated toward zero. The other operations leave the buffer unchanged.
func Finish(buf []byte, t Type, op Op, n int) error {
	if err := check(buf, t, op); err != nil {
		return err
	}
	if n < 1 {
		return fmt.Errorf("%w: %d, want at least 1", ErrRanks, n)
	}
	if op == Avg && !simdDivide(buf, t, n) {
		goDivide(buf, t, n)
	}
	return nil
}

func check(buf []byte, t Type, op Op) error {
	switch {
	case !t.valid():
		return fmt.Errorf("%w: %v", ErrType, t)
	case !op.valid():
		return fmt.Errorf("%w: %v", ErrOp, op)
	case len(buf)%t.Size() != 0:
		return fmt.Errorf("%w: %d bytes are not a whole number of %v", ErrSize, len(buf), t)
	}
	return nil
}
