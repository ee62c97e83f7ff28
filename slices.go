package allcast

import (
	"context"
	"reflect"
	"unsafe"
)

// Number is a Go type that reductions can compute with.
//
// It does not admit uint16, because a []uint16 usually holds half-precision floats: use BF16 or F16 for those.
// To combine unsigned 16-bit integers, call the method with the type Uint16:
//
//	c.Allreduce(ctx, allcast.Bytes(send), allcast.Bytes(recv), allcast.Uint16, allcast.Sum)
type Number interface {
	~float32 | ~float64 | BF16 | F16 |
		~int | ~int8 | ~int16 | ~int32 | ~int64 | ~uint | ~uint8 | ~uint32 | ~uint64
}

// Reducible is a Go type that reductions can combine. A bool has only the operators And, Or and Xor.
type Reducible interface{ Number | ~bool }

// Element is a Go type that collectives can move. It need not be Reducible.
type Element interface{ Reducible | ~uint16 }

// TypeOf returns the DataType of a Go type. int and uint have the DataType of their size on this machine.
func TypeOf[T Reducible]() DataType {
	t := reflect.TypeFor[T]()
	switch t {
	case reflect.TypeFor[BF16]():
		return BFloat16
	case reflect.TypeFor[F16]():
		return Float16
	}
	switch t.Kind() {
	case reflect.Float32:
		return Float32
	case reflect.Float64:
		return Float64
	case reflect.Bool:
		return Bool
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return [...]DataType{1: Int8, 2: Int16, 4: Int32, 8: Int64}[t.Size()]
	default:
		return [...]DataType{1: Uint8, 4: Uint32, 8: Uint64}[t.Size()]
	}
}

// Bytes returns the memory of a slice, for methods that take bytes. It copies nothing. The result is nil if s is.
func Bytes[T Element](s []T) []byte {
	var x T
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(s))), len(s)*int(unsafe.Sizeof(x)))
}

// BroadcastSlice is Comm.Broadcast for a slice.
func BroadcastSlice[T Element](ctx context.Context, c *Comm, buf []T, root int, opts ...CallOption) error {
	return c.Broadcast(ctx, Bytes(buf), root, opts...)
}

// AllgatherSlice is Comm.Allgather for slices.
func AllgatherSlice[T Element](ctx context.Context, c *Comm, send, recv []T, opts ...CallOption) error {
	return c.Allgather(ctx, Bytes(send), Bytes(recv), opts...)
}

// AllgathervSlice is Comm.Allgatherv for slices. Rank i contributes counts[i] elements.
func AllgathervSlice[T Element](
	ctx context.Context, c *Comm, send, recv []T, counts []int, opts ...CallOption,
) error {
	bytes, err := countBytes(counts, recv)
	if err != nil {
		return err
	}
	return c.Allgatherv(ctx, Bytes(send), Bytes(recv), bytes, opts...)
}

// ReduceScatterSlice is Comm.ReduceScatter for slices.
func ReduceScatterSlice[T Reducible](
	ctx context.Context, c *Comm, send, recv []T, op ReduceOp, opts ...CallOption,
) error {
	return c.ReduceScatter(ctx, Bytes(send), Bytes(recv), TypeOf[T](), op, opts...)
}

// AllreduceSlice is Comm.Allreduce for slices.
func AllreduceSlice[T Reducible](
	ctx context.Context, c *Comm, send, recv []T, op ReduceOp, opts ...CallOption,
) error {
	return c.Allreduce(ctx, Bytes(send), Bytes(recv), TypeOf[T](), op, opts...)
}

// countBytes converts counts of elements of buf to bytes. Counts beyond buf could overflow.
func countBytes[T Element](counts []int, buf []T) ([]int, error) {
	var x T
	bytes := make([]int, len(counts))
	for i, n := range counts {
		if n < 0 || n > len(buf) {
			return nil, invalid("the count of rank %d is %d: want 0 to %d, the number of elements of the buffer",
				i, n, len(buf))
		}
		bytes[i] = n * int(unsafe.Sizeof(x))
	}
	return bytes, nil
}

// GatherSlice is Comm.Gather for slices.
func GatherSlice[T Element](ctx context.Context, c *Comm, send, recv []T, root int, opts ...CallOption) error {
	return c.Gather(ctx, Bytes(send), Bytes(recv), root, opts...)
}

// ScatterSlice is Comm.Scatter for slices.
func ScatterSlice[T Element](ctx context.Context, c *Comm, send, recv []T, root int, opts ...CallOption) error {
	return c.Scatter(ctx, Bytes(send), Bytes(recv), root, opts...)
}

// AlltoallSlice is Comm.Alltoall for slices.
func AlltoallSlice[T Element](ctx context.Context, c *Comm, send, recv []T, opts ...CallOption) error {
	return c.Alltoall(ctx, Bytes(send), Bytes(recv), opts...)
}

// ReduceSlice is Comm.Reduce for slices.
func ReduceSlice[T Reducible](
	ctx context.Context, c *Comm, send, recv []T, op ReduceOp, root int, opts ...CallOption,
) error {
	return c.Reduce(ctx, Bytes(send), Bytes(recv), TypeOf[T](), op, root, opts...)
}

// SendSlice is Comm.Send for a slice.
func SendSlice[T Element](ctx context.Context, c *Comm, s []T, to, tag int, opts ...CallOption) error {
	return c.Send(ctx, Bytes(s), to, tag, opts...)
}

// RecvSlice is Comm.Recv for a slice. It returns the number of whole elements and the sender.
func RecvSlice[T Element](
	ctx context.Context, c *Comm, s []T, from, tag int, opts ...CallOption,
) (n, source int, err error) {
	m, err := c.Recv(ctx, Bytes(s), from, tag, opts...)
	var x T
	return m.Bytes / int(unsafe.Sizeof(x)), m.Source, err
}
