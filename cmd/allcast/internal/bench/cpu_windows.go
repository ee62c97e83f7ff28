package bench

import "syscall"

// cpuTimes returns the processor time that this process has used so far, in ns.
func cpuTimes() (user, sys int64) {
	var created, exited, kernel, spent syscall.Filetime
	self, err := syscall.GetCurrentProcess()
	if err == nil {
		err = syscall.GetProcessTimes(self, &created, &exited, &kernel, &spent)
	}
	if err != nil {
		return 0, 0 // it cannot fail for the process itself
	}
	ns := func(t syscall.Filetime) int64 { return (int64(t.HighDateTime)<<32 | int64(t.LowDateTime)) * 100 }
	return ns(spent), ns(kernel)
}
