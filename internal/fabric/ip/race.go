//go:build race

package ip

import (
	"runtime"
	"unsafe"
)

// sent orders what TCP orders, by sender: what a rank did before it sent happened before what the peer
// does after it received, and before what the rank itself does after it received an answer, which may
// have come by way of other processes. The race detector does not see that by itself, because we call
// the kernel directly.
var sent [64]byte

func sentBy(rank int) unsafe.Pointer { return unsafe.Pointer(&sent[rank%len(sent)]) }

// raceSend says that a rank reads these bytes to send them.
func raceSend(from int, vec ...[]byte) {
	for _, b := range vec {
		if len(b) > 0 {
			runtime.RaceReadRange(unsafe.Pointer(unsafe.SliceData(b)), len(b))
		}
	}
	runtime.RaceReleaseMerge(sentBy(from))
}

// raceReceive says that a rank has received bytes.
func raceReceive(from, to int) {
	runtime.RaceAcquire(sentBy(from))
	runtime.RaceAcquire(sentBy(to))
}
