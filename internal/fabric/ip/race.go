//go:build race

package ip

import (
	"runtime"
	"sync"
	"unsafe"
)

// peerPool holds free buffers. It keeps all of them: under the race detector, sync.Pool drops every fourth
// one, and a new one takes 0.5 ms. A rank that receives small parts would be 60 times slower.
type peerPool struct {
	mu   sync.Mutex
	free []*peerBuffer
}

func (p *peerPool) get() *peerBuffer {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := len(p.free)
	if n == 0 {
		return newPeerBuffer()
	}
	b := p.free[n-1]
	p.free = p.free[:n-1]
	return b
}

func (p *peerPool) put(b *peerBuffer) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.free = append(p.free, b)
}

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
