package ip

import "time"

// udpPause is how long the next Await sleeps while a device's queue is full: the kernel does not say
// when the queue has room. 0: it is not full.
type udpPause time.Duration

const (
	udpFirstPause = udpPause(20 * time.Microsecond)
	udpLongPause  = udpPause(5 * time.Millisecond)
)

// begin notes that the queue is full.
func (p *udpPause) begin() { *p = max(*p, udpFirstPause) }

// end notes that the queue has room.
func (p *udpPause) end() { *p = 0 }

// sleep sleeps if the queue is full, for at most d, and reports whether it was. Each sleep is twice as
// long as the one before.
func (p *udpPause) sleep(d time.Duration) bool {
	if *p == 0 {
		return false
	}
	time.Sleep(min(time.Duration(*p), d))
	*p = min(2**p, udpLongPause)
	return true
}
