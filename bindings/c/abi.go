//go:build linux && cgo

package main

// #include "internal.h"
import "C"

import (
	"unsafe"

	"github.com/allcast/allcast"
	"github.com/allcast/allcast/internal/inherit"
)

// same is the type of an array whose length is the difference of two equal constants. The package does not compile if
// the constants of allcast.h differ from those of Go.
type same = [0]struct{}

var (
	_ same = [C.ALLCAST_FLOAT32 - allcast.Float32]struct{}{}
	_ same = [C.ALLCAST_FLOAT64 - allcast.Float64]struct{}{}
	_ same = [C.ALLCAST_FLOAT16 - allcast.Float16]struct{}{}
	_ same = [C.ALLCAST_BFLOAT16 - allcast.BFloat16]struct{}{}
	_ same = [C.ALLCAST_INT8 - allcast.Int8]struct{}{}
	_ same = [C.ALLCAST_INT16 - allcast.Int16]struct{}{}
	_ same = [C.ALLCAST_INT32 - allcast.Int32]struct{}{}
	_ same = [C.ALLCAST_INT64 - allcast.Int64]struct{}{}
	_ same = [C.ALLCAST_UINT8 - allcast.Uint8]struct{}{}
	_ same = [C.ALLCAST_UINT16 - allcast.Uint16]struct{}{}
	_ same = [C.ALLCAST_UINT32 - allcast.Uint32]struct{}{}
	_ same = [C.ALLCAST_UINT64 - allcast.Uint64]struct{}{}
	_ same = [C.ALLCAST_BOOL - allcast.Bool]struct{}{}

	_ same = [C.ALLCAST_SUM - allcast.Sum]struct{}{}
	_ same = [C.ALLCAST_AVERAGE - allcast.Average]struct{}{}
	_ same = [C.ALLCAST_MIN - allcast.Min]struct{}{}
	_ same = [C.ALLCAST_MAX - allcast.Max]struct{}{}
	_ same = [C.ALLCAST_PRODUCT - allcast.Product]struct{}{}
	_ same = [C.ALLCAST_AND - allcast.And]struct{}{}
	_ same = [C.ALLCAST_OR - allcast.Or]struct{}{}
	_ same = [C.ALLCAST_XOR - allcast.Xor]struct{}{}
	_ same = [C.ALLCAST_PREMULTIPLIED_SUM - allcast.PremultipliedSum]struct{}{}

	_ same = [C.ALLCAST_ANY_SOURCE - allcast.AnySource]struct{}{}

	_ same = [unsafe.Sizeof(C.struct_socket_entry{}) - unsafe.Sizeof(inherit.Entry{})]struct{}{}
	_ same = [unsafe.Offsetof(C.struct_socket_entry{}.device) - unsafe.Offsetof(inherit.Entry{}.Device)]struct{}{}
	_ same = [unsafe.Offsetof(C.struct_socket_entry{}.fd) - unsafe.Offsetof(inherit.Entry{}.FD)]struct{}{}
)
