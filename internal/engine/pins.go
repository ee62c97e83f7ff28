package engine

import "sync/atomic"

// pins counts the goroutines that are touching an operation's buffers on behalf of a peer. Once it
// is closed none can begin, and the last one to leave says so.
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

// leave reports whether the caller was the last one after close.
func (p *pins) leave() (last bool) { return p.n.Add(-1) == pinsClosed }

// close lets nobody enter any more, and reports whether somebody still has to leave.
func (p *pins) close() (busy bool) { return p.n.Or(pinsClosed)&^pinsClosed > 0 }
