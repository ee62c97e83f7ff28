package engine

import (
	"runtime"

	"golang.org/x/sys/unix"
)

// pin binds the calling worker to the next of the processors that were asked for:
// its thread is then its own and stays where its data is.
func (e *Engine) pin() {
	if len(e.cfg.Pin) == 0 {
		return
	}
	cpu := e.cfg.Pin[int(e.pinned.Add(1)-1)%len(e.cfg.Pin)]
	runtime.LockOSThread()
	var set unix.CPUSet
	set.Set(cpu)
	if err := unix.SchedSetaffinity(0, &set); err != nil {
		e.log.Warn("a worker could not be bound to its processor", "cpu", cpu, "err", err)
	}
}
