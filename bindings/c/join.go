//go:build linux && cgo

package main

// #include <stdlib.h>
// #include "internal.h"
//
// extern char **environ;
import "C"

import (
	"context"
	"fmt"
	"strings"
	"unsafe"

	"github.com/allcast/allcast"
	"github.com/allcast/allcast/internal/joinhook"
)

//export goJoin
func goJoin(f *C.struct_failure, handle C.allcast_options, s *C.allcast_store, comm *C.allcast_comm) C.int {
	err := checkOut("comm", comm)
	o := newOptions()
	if err == nil && handle != 0 {
		o, err = optionsOf(handle)
	}
	if err == nil && s != nil && (s.set == nil || s.get == nil) {
		err = invalid("a store without the callbacks set and get")
	}
	if err != nil {
		return report(f, err)
	}
	C.use_alternate_stacks()
	c, err := join(o, s)
	if err != nil {
		return report(f, err)
	}
	C.leave_at_exit()
	*comm = addWorld(c)
	return C.ALLCAST_OK
}

// join runs Join in another goroutine, while this thread serves the store.
func join(o *options, s *C.allcast_store) (*allcast.Comm, error) {
	env := environment()
	opt, lookup, err := o.resolve(env)
	if err != nil {
		return nil, err
	}
	limitThreads(lookup)
	var served *callbackStore
	if s != nil {
		served = newCallbackStore(s)
		opt.Store = served
	}
	ctx, cancel := context.WithCancelCause(joinhook.With(context.Background(), joinhook.Hooks{Env: lookup}))
	defer cancel(nil)
	var c *allcast.Comm
	joined := make(chan struct{})
	go func() {
		defer close(joined)
		c, err = allcast.Join(ctx, opt)
	}()
	if served != nil {
		served.serve(joined, cancel)
	}
	<-joined
	switch {
	case err == nil:
		return c, nil
	case served != nil && served.failed != nil:
		return nil, fmt.Errorf("allcast: %w (%w)", served.failed, err)
	}
	return nil, joinError{err}
}

// joinError is an error of Join. It gets the code of errJoin if no other code matches.
type joinError struct{ error }

func (e joinError) Unwrap() []error { return []error{e.error, errJoin} }

// environment returns the variables of this process. Go's own copy is as old as the library's start, and the program
// may have changed them since.
func environment() map[string]string {
	env := map[string]string{}
	for p := C.environ; p != nil && *p != nil; p = (**C.char)(unsafe.Add(unsafe.Pointer(p), unsafe.Sizeof(*p))) {
		name, value, _ := strings.Cut(C.GoString(*p), "=")
		if _, ok := env[name]; !ok { // as getenv, which finds the first
			env[name] = value
		}
	}
	return env
}
