//go:build linux && cgo

package main

// #include <stdlib.h>
// #include "internal.h"
import "C"

import (
	"context"
	"fmt"
	"time"
	"unsafe"
)

// Times of a Get. A callback waits for a key for getWait, during which no other callback runs. If it returns earlier
// without a value, the thread pauses, because the callback may not wait at all.
const (
	getWait  = 100 * time.Millisecond
	getPause = 10 * time.Millisecond
)

// callbackStore is a store of a C program. Its methods pass requests to the thread that called allcast_join, which
// runs the callbacks.
type callbackStore struct {
	c        *C.allcast_store
	requests chan *storeRequest
	over     chan struct{} // closed when the thread serves no more requests
	failed   error         // error of the first callback that failed
}

type storeRequest struct {
	ctx    context.Context
	key    string
	set    bool
	value  []byte
	err    error
	served chan struct{}
}

func newCallbackStore(c *C.allcast_store) *callbackStore {
	return &callbackStore{c: c, requests: make(chan *storeRequest), over: make(chan struct{})}
}

// Set stores a value.
func (s *callbackStore) Set(ctx context.Context, key string, value []byte) error {
	_, err := s.request(&storeRequest{ctx: ctx, key: key, set: true, value: value})
	return err
}

// Get waits for a value.
func (s *callbackStore) Get(ctx context.Context, key string) ([]byte, error) {
	return s.request(&storeRequest{ctx: ctx, key: key})
}

func (s *callbackStore) request(r *storeRequest) ([]byte, error) {
	r.served = make(chan struct{})
	select {
	case s.requests <- r:
	case <-r.ctx.Done():
		return nil, context.Cause(r.ctx)
	case <-s.over:
		return nil, errStore
	}
	select {
	case <-r.served:
		return r.value, r.err
	case <-r.ctx.Done():
		return nil, context.Cause(r.ctx)
	case <-s.over:
		return nil, errStore
	}
}

// serve runs callbacks on this thread until joined is closed. Gets without a value take turns, and new requests come
// between them. If a callback fails, serve cancels the Join.
func (s *callbackStore) serve(joined <-chan struct{}, cancel context.CancelCauseFunc) {
	defer close(s.over)
	var gets []*storeRequest
	timer := time.NewTimer(getPause)
	defer timer.Stop()
	for {
		var pause <-chan time.Time
		if len(gets) > 0 {
			pause = timer.C
		}
		select {
		case <-joined:
			return
		case r := <-s.requests:
			gets = append(gets, r) // also a Set, which ends in its first turn
		case <-pause:
		}
		rest := gets[:0]
		for _, r := range gets {
			switch {
			case r.ctx.Err() != nil:
			case s.try(r, getWait/time.Duration(len(gets))):
				if r.err != nil && s.failed == nil {
					s.failed = r.err
					cancel(r.err)
				}
				close(r.served)
			default:
				rest = append(rest, r)
			}
		}
		clear(gets[len(rest):])
		gets = rest
		timer.Reset(getPause)
	}
}

// try runs the callback of a request. It reports whether the request has ended.
func (s *callbackStore) try(r *storeRequest, wait time.Duration) bool {
	key := C.CString(r.key)
	defer C.free(unsafe.Pointer(key))
	if r.set {
		value := C.CBytes(r.value)
		defer C.free(value)
		if code := C.store_set(s.c, key, value, C.size_t(len(r.value))); code != 0 {
			r.err = fmt.Errorf("%w: callback set returned %d for the key %q", errStore, code, r.key)
		}
		return true
	}
	var value unsafe.Pointer
	var length C.size_t
	switch code := C.store_get(s.c, key, C.int64_t(wait.Milliseconds()), &value, &length); code {
	case 0:
		defer C.free(value)
		b, err := buffer("value", value, length)
		if err != nil {
			r.err = fmt.Errorf("%w: callback get of the key %q: %w", errStore, r.key, err)
			return true
		}
		r.value = append([]byte{}, b...)
		return true
	case 1:
		return false
	default:
		r.err = fmt.Errorf("%w: callback get returned %d for the key %q", errStore, code, r.key)
		return true
	}
}
