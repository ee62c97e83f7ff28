package allcast

import (
	"context"
	"unsafe"
)

// Number is an element type that Go knows.
type Number interface {
	~float32 | ~float64 | ~int8 | ~int16 | ~int32 | ~int64 | ~uint8 | ~uint16 | ~uint32 | ~uint64
}

// TypeOf is the DataType of a Go type.
func TypeOf[T Number]() DataType {
	var x T
	switch any(x).(type) {
	case float32:
		return Float32
	case float64:
		return Float64
	}
	half := x + 1
	half /= 2
	size := unsafe.Sizeof(x)
	if half != 0 { // only a float keeps a half
		if size == 4 {
			return Float32
		}
		return Float64
	}
	signed := x-1 < 0
	switch size {
	case 1:
		return pick(signed, Int8, Uint8)
	case 2:
		return pick(signed, Int16, Uint16)
	case 4:
		return pick(signed, Int32, Uint32)
	}
	return pick(signed, Int64, Uint64)
}

func pick[T any](first bool, a, b T) T {
	if first {
		return a
	}
	return b
}

// Bytes is the memory of a slice of numbers, as the calls that take bytes want it.
func Bytes[T Number](s []T) []byte {
	var x T
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(s))), len(s)*int(unsafe.Sizeof(x)))
}

// BroadcastSlice is Comm.Broadcast for a slice of numbers.
func BroadcastSlice[T Number](ctx context.Context, c *Comm, buf []T, root int, opts ...CallOption) error {
	return c.Broadcast(ctx, Bytes(buf), root, opts...)
}

// AllgatherSlice is Comm.Allgather for slices of numbers.
func AllgatherSlice[T Number](ctx context.Context, c *Comm, send, recv []T, opts ...CallOption) error {
	return c.Allgather(ctx, maybe(send), Bytes(recv), opts...)
}

// ReduceScatterSlice is Comm.ReduceScatter for slices of numbers.
func ReduceScatterSlice[T Number](ctx context.Context, c *Comm, send, recv []T, op ReduceOp, opts ...CallOption) error {
	return c.ReduceScatter(ctx, Bytes(send), Bytes(recv), TypeOf[T](), op, opts...)
}

// AllreduceSlice is Comm.Allreduce for slices of numbers.
func AllreduceSlice[T Number](ctx context.Context, c *Comm, send, recv []T, op ReduceOp, opts ...CallOption) error {
	return c.Allreduce(ctx, maybe(send), Bytes(recv), TypeOf[T](), op, opts...)
}

// maybe keeps nil, which means "in place", apart from empty.
func maybe[T Number](s []T) []byte {
	if s == nil {
		return nil
	}
	return Bytes(s)
}
