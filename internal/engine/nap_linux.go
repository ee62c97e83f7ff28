package engine

import (
	"time"

	"golang.org/x/sys/unix"
)

// nap waits for so long. The runtime's timers may round a pause up to a millisecond
// when nothing else runs; the kernel's do not.
func nap(d time.Duration) {
	t := unix.NsecToTimespec(d.Nanoseconds())
	_ = unix.Nanosleep(&t, nil) // a signal ends it early: as good
}

// relax lets other processes have the processor, if they want it.
func relax() {
	_, _, _ = unix.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0)
}
