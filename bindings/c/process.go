//go:build linux && cgo

package main

// #include "internal.h"
import "C"

import (
	"runtime"
	"strconv"
	"sync"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/allcast/allcast"
	"github.com/allcast/allcast/internal/inherit"
	"github.com/allcast/allcast/internal/settings"
)

// maxThreads is the default limit of threads that run Go code at once. More hardly help one rank, and take
// processors from the program.
const maxThreads = 4

// processors is the number of processors that this process may use, also by the limit of its control group.
var processors = runtime.GOMAXPROCS(0)

func init() {
	copyText(C.library_version[:], allcast.Version)
	inherit.Enable(unsafe.Slice((*inherit.Entry)(unsafe.Pointer(&C.sockets[0])), len(C.sockets)))
	settings.Stderr = standardError{}
	limitThreads(settings.Process)
}

// standardError writes to standard error. Unlike os.Stderr, it ignores errors: see settings.Stderr.
type standardError struct{}

func (standardError) Write(b []byte) (int, error) {
	_, _ = unix.Write(unix.Stderr, b)
	return len(b), nil
}

//export goAwaitInit
func goAwaitInit() {} // the call itself waits for init

// parallelism remembers whether the program has chosen the number of threads.
var parallelism struct {
	sync.Mutex
	chosen bool
}

// limitThreads sets the default number of threads: the share of the processors of one rank.
func limitThreads(env settings.Env) {
	parallelism.Lock()
	defer parallelism.Unlock()
	n, err := strconv.Atoi(env.Get("GOMAXPROCS"))
	if err != nil || n < 1 {
		n = min(max(1, processors/max(1, settings.LocalSize(env))), maxThreads)
	}
	if !parallelism.chosen && n != runtime.GOMAXPROCS(0) {
		runtime.GOMAXPROCS(n)
	}
}

//export goSetParallelism
func goSetParallelism(f *C.struct_failure, threads C.int) C.int {
	if threads < 1 {
		return report(f, invalid("%d threads: want at least 1", threads))
	}
	parallelism.Lock()
	defer parallelism.Unlock()
	parallelism.chosen = true
	runtime.GOMAXPROCS(int(threads))
	return C.ALLCAST_OK
}

// exitLimit is how long a process that exits waits for other ranks, which may exit too. It then says goodbye.
const exitLimit = 500 * time.Millisecond

// goExit leaves all jobs that the program has not left.
//
//export goExit
func goExit() {
	var leaving sync.WaitGroup
	for _, c := range comms.all() {
		if c.Comm == c.world {
			leaving.Go(func() { _ = c.CloseWithin(exitLimit) }) // nobody is left to hear of an error
		}
	}
	leaving.Wait()
}
