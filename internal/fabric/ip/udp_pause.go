package ip

import "time"

// udpPause is how long the next Await sleeps while a device's queue is full, since the kernel does not
// report when the queue has room. 0: the queue is not full.
type udpPause time.Duration

const (
	udpFirstPause = udpPause(20 * time.Microsecond)
	udpMaxPause   = udpPause(5 * time.Millisecond)
)

// begin notes that the queue is full.
func (p *udpPause) begin() { *p = max(*p, udpFirstPause) }

// sleep backs off if the queue is full, for at most d, and reports whether the queue was full. Each
// sleep is twice as long as the one before.
func (p *udpPause) sleep(d time.Duration) bool {
	if *p == 0 {
		return false
	}
	time.Sleep(min(time.Duration(*p), d))
	*p = min(2**p, udpMaxPause)
	return true
}
