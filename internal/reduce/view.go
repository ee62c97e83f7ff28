package reduce

import (
	"encoding/binary"
	"unsafe"
)

// hostLittle reports whether the machine is little-endian, like the buffers. Tests clear it, because the
// other path gives the same results on any machine.
var hostLittle = func() bool {
	one := uint16(1)
	return *(*byte)(unsafe.Pointer(&one)) == 1
}()

// view returns b as elements without a copy. It returns false if b is not aligned for T, or if the
// machine is big-endian.
func view[T number](b []byte) ([]T, bool) {
	if len(b) == 0 {
		return nil, true
	}
	p := unsafe.Pointer(unsafe.SliceData(b))
	var x T
	if !hostLittle || uintptr(p)%unsafe.Alignof(x) != 0 {
		return nil, false
	}
	return unsafe.Slice((*T)(p), len(b)/int(unsafe.Sizeof(x))), true
}

// load fills dst from src as far as both reach, and returns the number of elements.
func load[T number](dst []T, src []byte) int {
	size := int(unsafe.Sizeof(dst[0]))
	n := min(len(dst), len(src)/size)
	p := unsafe.Pointer(unsafe.SliceData(dst))
	if hostLittle {
		copy(unsafe.Slice((*byte)(p), n*size), src)
		return n
	}
	switch size {
	case 1:
		copy(unsafe.Slice((*byte)(p), n), src)
	case 2:
		words := unsafe.Slice((*uint16)(p), n)
		for i := range words {
			words[i] = binary.LittleEndian.Uint16(src[2*i:])
		}
	case 4:
		words := unsafe.Slice((*uint32)(p), n)
		for i := range words {
			words[i] = binary.LittleEndian.Uint32(src[4*i:])
		}
	case 8:
		words := unsafe.Slice((*uint64)(p), n)
		for i := range words {
			words[i] = binary.LittleEndian.Uint64(src[8*i:])
		}
	}
	return n
}

// store writes all of src to dst, and returns the number of bytes.
func store[T number](dst []byte, src []T) int {
	size := int(unsafe.Sizeof(src[0]))
	p := unsafe.Pointer(unsafe.SliceData(src))
	if hostLittle {
		return copy(dst, unsafe.Slice((*byte)(p), size*len(src)))
	}
	switch size {
	case 1:
		copy(dst, unsafe.Slice((*byte)(p), len(src)))
	case 2:
		for i, u := range unsafe.Slice((*uint16)(p), len(src)) {
			binary.LittleEndian.PutUint16(dst[2*i:], u)
		}
	case 4:
		for i, u := range unsafe.Slice((*uint32)(p), len(src)) {
			binary.LittleEndian.PutUint32(dst[4*i:], u)
		}
	case 8:
		for i, u := range unsafe.Slice((*uint64)(p), len(src)) {
			binary.LittleEndian.PutUint64(dst[8*i:], u)
		}
	}
	return size * len(src)
}
