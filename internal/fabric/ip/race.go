//go:build race

package ip

import (
	"runtime"
	"unsafe"
)

// sent orders what TCP orders, by sender and receiver: what a rank did before it sent happened before
// what another does after it received. The race detector does not see that by itself, because we call
// the kernel directly.
var sent [64][64]byte

func pairOf(from, to int) unsafe.Pointer {
	return unsafe.Pointer(&sent[from%len(sent)][to%len(sent)])
}

// raceSend says that a rank reads these bytes to send them.
func raceSend(from, to int, vec ...[]byte) {
	for _, b := range vec {
		if len(b) > 0 {
			runtime.RaceReadRange(unsafe.Pointer(unsafe.SliceData(b)), len(b))
		}
	}
	runtime.RaceReleaseMerge(pairOf(from, to))
}

// raceReceive says that a rank has received bytes.
func raceReceive(from, to int) { runtime.RaceAcquire(pairOf(from, to)) }
