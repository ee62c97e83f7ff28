package datapath

import (
	"time"

	"golang.org/x/sys/unix"
)

// nap sleeps for d. The runtime's timers may round a pause up to a millisecond when nothing else runs;
// the kernel's do not.
func nap(d time.Duration) {
	t := unix.NsecToTimespec(d.Nanoseconds())
	_ = unix.Nanosleep(&t, nil) // a signal may end it early, which does no harm
}
