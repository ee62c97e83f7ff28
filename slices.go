package allcast

import (
	"context"
	"unsafe"
)

// Number is a Go type that buffers can have as elements.
type Number interface {
	~float32 | ~float64 | ~int8 | ~int16 | ~int32 | ~int64 | ~uint8 | ~uint16 | ~uint32 | ~uint64
}

// TypeOf returns the DataType of a Go type.
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
	if half != 0 { // an integer would truncate one half to 0
		if size == 4 {
			return Float32
		}
		return Float64
	}
	signed := x-1 < 0
	switch size {
	case 1:
		return ifElse(signed, Int8, Uint8)
	case 2:
		return ifElse(signed, Int16, Uint16)
	case 4:
		return ifElse(signed, Int32, Uint32)
	}
	return ifElse(signed, Int64, Uint64)
}

func ifElse[T any](first bool, a, b T) T {
	if first {
		return a
	}
	return b
}

// Bytes returns the memory of a slice of numbers, for methods that take bytes. It copies nothing.
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
	return c.Allgather(ctx, bytesOrNil(send), Bytes(recv), opts...)
}

// ReduceScatterSlice is Comm.ReduceScatter for slices of numbers.
func ReduceScatterSlice[T Number](ctx context.Context, c *Comm, send, recv []T, op ReduceOp, opts ...CallOption) error {
	return c.ReduceScatter(ctx, Bytes(send), Bytes(recv), TypeOf[T](), op, opts...)
}

// AllreduceSlice is Comm.Allreduce for slices of numbers.
func AllreduceSlice[T Number](ctx context.Context, c *Comm, send, recv []T, op ReduceOp, opts ...CallOption) error {
	return c.Allreduce(ctx, bytesOrNil(send), Bytes(recv), TypeOf[T](), op, opts...)
}

// bytesOrNil is Bytes, except that it returns nil for nil, which means "in place".
func bytesOrNil[T Number](s []T) []byte {
	if s == nil {
		return nil
	}
	return Bytes(s)
}
