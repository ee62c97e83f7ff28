//go:build race

package ip

import (
	"runtime"
	"unsafe"
)

// sent tells the race detector, by sender, which events TCP orders. A send happens before the peer
// receives, and before the sending rank receives an answer, which may come through other processes. The
// race detector cannot see this order, because this package calls the kernel directly.
var sent [64]byte

func sentBy(rank int) unsafe.Pointer { return unsafe.Pointer(&sent[rank%len(sent)]) }

// raceSend tells the race detector that a rank reads these bytes and sends them.
func raceSend(from int, vec ...[]byte) {
	for _, b := range vec {
		if len(b) > 0 {
			runtime.RaceReadRange(unsafe.Pointer(unsafe.SliceData(b)), len(b))
		}
	}
	runtime.RaceReleaseMerge(sentBy(from))
}

// raceReceive tells the race detector that a rank has received bytes.
func raceReceive(from, to int) {
	runtime.RaceAcquire(sentBy(from))
	runtime.RaceAcquire(sentBy(to))
}
