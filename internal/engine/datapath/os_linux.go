package datapath

import (
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// nap sleeps for d. The runtime's timers may round a pause up to a millisecond when nothing else runs;
// the kernel's do not.
func nap(d time.Duration) {
	t := unix.NsecToTimespec(d.Nanoseconds())
	_ = unix.Nanosleep(&t, nil) // a signal may end it early, which does no harm
}

// Relax yields the processor to other processes that want it.
func (*Polling) Relax() { _, _, _ = unix.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0) }

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
		d.cfg.Logger.Warn("cannot bind a worker to its processor", "cpu", cpu, "err", err)
	}
}

const hugePage = 2 << 20

// mapMemory returns memory with its pages in place, huge pages if n is large.
func mapMemory(n int) ([]byte, error) {
	mem, err := unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return nil, err
	}
	if n >= hugePage {
		_ = unix.Madvise(mem, unix.MADV_HUGEPAGE) // best effort
	}
	_ = unix.Madvise(mem, unix.MADV_POPULATE_WRITE) // best effort: Linux before 5.14 faults pages in on use
	return mem, nil
}

func unmapMemory(mem []byte) error { return unix.Munmap(mem) }
