package ip

import "time"

// Flush implements fabric.Lifecycle. It is for the moment before a process may end, so
// it looks again and again: to be told would cost something every time else.
func (t *TCP) Flush(most time.Duration) {
	for end := time.Now().Add(most); time.Now().Before(end); time.Sleep(100 * time.Microsecond) {
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

// flushed reports whether the kernel has all that was queued, or nobody will get it.
func (p *peer) flushed() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.links.Ended() || (len(p.q.items) == 0 && !p.busy)
}
