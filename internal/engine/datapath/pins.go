package datapath

import "sync/atomic"

// pins counts the goroutines that touch an operation's buffers on behalf of a peer. After close no
// goroutine can enter, and the last one to leave is told.
type pins struct{ n atomic.Int64 }

const pinsClosed = 1 << 62

// enter reports whether the caller may touch the buffers, until it calls leave.
func (p *pins) enter() bool {
	for {
		n := p.n.Load()
		if n&pinsClosed != 0 {
			return false
		}
		if p.n.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

// leave ends enter. It reports whether the caller is the last one after close.
func (p *pins) leave() (last bool) { return p.n.Add(-1) == pinsClosed }

// close keeps all goroutines from entering, and reports whether one still has to leave.
func (p *pins) close() (busy bool) { return p.n.Or(pinsClosed)&^pinsClosed > 0 }
