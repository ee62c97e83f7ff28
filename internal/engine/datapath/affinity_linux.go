package datapath

import (
	"runtime"

	"golang.org/x/sys/unix"
)

// pin binds the calling worker to the next processor of Config.Pin. Its thread then stays with its data.
func (d *Datapath) pin() {
	if len(d.cfg.Pin) == 0 {
		return
	}
	cpu := d.cfg.Pin[int(d.workers.pinned.Add(1)-1)%len(d.cfg.Pin)]
	runtime.LockOSThread()
	var set unix.CPUSet
	set.Set(cpu)
	if err := unix.SchedSetaffinity(0, &set); err != nil {
		d.cfg.Log.Warn("cannot bind a worker to its processor", "cpu", cpu, "err", err)
	}
}
