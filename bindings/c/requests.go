//go:build linux && cgo

package main

// #include "internal.h"
import "C"

import (
	"errors"
	"fmt"
	"sync"

	"github.com/allcast/allcast"
)

// request is a request with a handle.
type request struct {
	*allcast.Request
	queued chan struct{} // closed when its completion is in the queue; nil: it has no queue
}

var requests = newTable[request](requestKind)

// requestOf returns the request of a handle.
func requestOf(handle C.allcast_request) (request, error) {
	if r, ok := requests.get(uint64(handle)); ok {
		return r, nil
	}
	return request{}, invalid("%#x is no handle of a request, or was released", uint64(handle))
}

// describe stores the message of a receive.
func describe(r *allcast.Request, message *C.allcast_message) {
	if message == nil {
		return
	}
	m := r.Message()
	message.source, message.tag, message.bytes = C.int32_t(m.Source), C.int32_t(m.Tag), C.uint64_t(m.Bytes)
}

//export goWait
func goWait(f *C.struct_failure, handle C.allcast_request, timeout C.int64_t, message *C.allcast_message) C.int {
	r, err := requestOf(handle)
	if err != nil {
		return report(f, err)
	}
	ctx, cancel := contextFor(timeout)
	defer cancel()
	err = r.Wait(ctx)
	if err != nil && errors.Is(err, ctx.Err()) { // errors of operations that were started match no context
		return report(f, fmt.Errorf("allcast: %w", errTimeout))
	}
	if r.queued != nil {
		<-r.queued // the program may now free the queue
	}
	requests.remove(uint64(handle))
	if err == nil {
		describe(r.Request, message)
	}
	return report(f, err)
}

//export goCancel
func goCancel(f *C.struct_failure, handle C.allcast_request) C.int {
	r, err := requestOf(handle)
	if err == nil {
		r.Cancel()
	}
	return report(f, err)
}

//export goRelease
func goRelease(f *C.struct_failure, handle C.allcast_request) C.int {
	_, err := requestOf(handle)
	requests.remove(uint64(handle))
	return report(f, err)
}

// names are C copies of the names of algorithms, which live as long as the library.
var names sync.Map // string to *C.char

func constantText(s string) *C.char {
	if p, ok := names.Load(s); ok {
		return p.(*C.char)
	}
	p, _ := names.LoadOrStore(s, C.CString(s))
	return p.(*C.char)
}

//export goAlgorithm
func goAlgorithm(handle C.allcast_request) *C.char {
	r, err := requestOf(handle)
	if err != nil {
		return constantText("")
	}
	return constantText(r.Info().Algorithm)
}
