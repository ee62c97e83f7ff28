//go:build linux && cgo

package main

// #include "internal.h"
import "C"

import (
	"math"
	"unsafe"
)

// toInt converts a size.
func toInt(name string, n C.size_t) (int, error) {
	if n > math.MaxInt {
		return 0, invalid("%s is %d, which is more than the address space", name, uint64(n))
	}
	return int(n), nil
}

// array returns n elements of a C array.
func array[T any](name string, p *T, n C.size_t) ([]T, error) {
	var element T
	switch {
	case n == 0 && p == nil:
		return nil, nil
	case p == nil:
		return nil, invalid("%s is NULL: want %d elements", name, uint64(n))
	case n > C.size_t(math.MaxInt/max(unsafe.Sizeof(element), 1)):
		return nil, invalid("%s has %d elements, which is more than the address space", name, uint64(n))
	}
	return unsafe.Slice(p, int(n)), nil
}

// buffer returns n bytes of C memory. It is nil if the pointer is, and n is 0.
func buffer(name string, p unsafe.Pointer, n C.size_t) ([]byte, error) {
	if p == nil && n > 0 {
		return nil, invalid("%s is NULL: want %d bytes", name, uint64(n))
	}
	return array(name, (*byte)(p), n)
}

// optional returns n bytes of C memory, and nil if the pointer is NULL.
func optional(name string, p unsafe.Pointer, n C.size_t) ([]byte, error) {
	if p == nil {
		return nil, nil
	}
	return buffer(name, p, n)
}

// times returns the size of n blocks.
func times(name string, bytes C.size_t, n int) (C.size_t, error) {
	if n > 0 && bytes > C.size_t(math.MaxInt/n) {
		return 0, invalid("%s is %d: %d blocks are more than the address space", name, uint64(bytes), n)
	}
	return bytes * C.size_t(n), nil
}

// sizes converts counts, and returns their sum.
func sizes(name string, p *C.size_t, n int) (counts []int, sum C.size_t, err error) {
	list, err := array(name, p, C.size_t(n))
	if err != nil {
		return nil, 0, err
	}
	counts = make([]int, n)
	for i, c := range list {
		if c > math.MaxInt-sum {
			return nil, 0, invalid("the sum of %s is more than the address space", name)
		}
		counts[i] = int(c)
		sum += c
	}
	return counts, sum, nil
}
