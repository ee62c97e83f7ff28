package reduce

import (
	"errors"
	"fmt"
)

// Errors that calls return.
var (
	ErrType    = errors.New("unknown element type")
	ErrOp      = errors.New("unknown operator")
	ErrCombine = errors.New("the operator does not apply to the element type")
	ErrSize    = errors.New("wrong buffer size")
	ErrRanks   = errors.New("wrong number of operands")
)

// Into sets dst[i] to dst[i] op src[i] for every element. Both buffers have the same length, a multiple
// of the element size. They must not overlap, unless they are the same memory. dst is unchanged after an
// error.
func Into(dst, src []byte, t Type, op Op) error {
	if err := check(dst, src, t, op); err != nil {
		return err
	}
	if !simdInto(dst, src, t, op) {
		goInto(dst, src, t, op)
	}
	return nil
}

// Finish turns the accumulated value of n operands into the result. Avg divides every element by n.
// Floats are divided in f32 (F64 in f64) with n rounded to that type; F16 and BF16 results are rounded
// once more. Integers are truncated toward zero. A Bool becomes 0 or 1, which a single operand may not be
// yet. Everything else leaves the buffer unchanged.
func Finish(buf []byte, t Type, op Op, n int) error {
	if err := check(buf, buf, t, op); err != nil {
		return err
	}
	if n < 1 {
		return fmt.Errorf("%w: %d, want at least 1", ErrRanks, n)
	}
	switch {
	case op == Avg && !simdDivide(buf, t, n):
		goDivide(buf, t, n)
	case t == Bool:
		return Into(buf, buf, Bool, Or)
	}
	return nil
}

// Finishes reports whether Finish changes the result of n operands.
func Finishes(t Type, op Op, n int) bool { return op == Avg || t == Bool && n == 1 }

func check(dst, src []byte, t Type, op Op) error {
	switch {
	case t == 0:
		return fmt.Errorf("%w: it is not set", ErrType)
	case op == 0:
		return fmt.Errorf("%w: it is not set", ErrOp)
	case !t.valid():
		return fmt.Errorf("%w %v", ErrType, t)
	case !op.valid():
		return fmt.Errorf("%w %v", ErrOp, op)
	case t == Bool && !op.isLogic():
		return fmt.Errorf("%w: %v of %v: bool has and, or and xor", ErrCombine, op, t)
	case t.isFloat() && op.isLogic():
		return fmt.Errorf("%w: %v of %v: %v needs integers or bool", ErrCombine, op, t, op)
	case op == PremulSum && !t.isFloat():
		return fmt.Errorf("%w: %v of %v: %v needs floats", ErrCombine, op, t, op)
	case len(dst) != len(src):
		return fmt.Errorf("%w: %d bytes into %d", ErrSize, len(src), len(dst))
	case len(dst)%t.Size() != 0:
		return fmt.Errorf("%w: %d bytes are not a whole number of %v", ErrSize, len(dst), t)
	}
	return nil
}
