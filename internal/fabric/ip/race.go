//go:build race

package ip

import (
	"runtime"
	"unsafe"
)

// sent orders what TCP orders: what a rank did before it sent happened before what another does after
// it received. The race detector does not see that by itself, because we call the kernel directly.
var sent byte

// raceSend says that these bytes are read to be sent.
func raceSend(vec ...[]byte) {
	for _, b := range vec {
		if len(b) > 0 {
			runtime.RaceReadRange(unsafe.Pointer(unsafe.SliceData(b)), len(b))
		}
	}
	runtime.RaceReleaseMerge(unsafe.Pointer(&sent))
}

// raceReceive says that bytes were received.
func raceReceive() { runtime.RaceAcquire(unsafe.Pointer(&sent)) }
