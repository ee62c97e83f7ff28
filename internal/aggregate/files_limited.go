//go:build linux || darwin

package aggregate

import "syscall"

// openFiles is the limit of this process's open files.
func openFiles() int {
	var l syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &l); err != nil {
		return 1024
	}
	return int(min(l.Cur, 1<<30)) // "unlimited" is the largest number
}
