//go:build linux || darwin

package oslimit

import "syscall"

// OpenFiles returns this process's limit of open files, or a guess if the limit is not known.
func OpenFiles() (n int, known bool) {
	var l syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &l); err != nil {
		return 1024, false
	}
	return int(min(l.Cur, 1<<30)), true // "unlimited" is the largest number
}
