package ip

import "time"

// Flush implements fabric.Lifecycle. It runs rarely, before a process may end, so it polls: a
// notification would cost something on every write.
func (t *TCP) Flush(limit time.Duration) {
	for end := time.Now().Add(limit); time.Now().Before(end); time.Sleep(100 * time.Microsecond) {
		if t.flushed() {
			return
		}
	}
}

func (t *TCP) flushed() bool {
	for _, p := range t.peers {
		if p != nil && !p.flushed() {
			return false
		}
	}
	return true
}

// flushed reports whether the kernel has the whole queue, or the peer is gone.
func (p *peer) flushed() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.links.Ended() || (len(p.q.items) == 0 && !p.busy)
}
