package launch

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Adopt makes this process the parent of all processes that its ranks leave behind, including those that
// left the ranks' process groups. The function that it returns kills them, and all other children of this
// process. It is for a process that only runs a job.
func Adopt() (end func()) {
	// Best effort: kernels before 3.4 lack it, and Run kills the groups anyway.
	_ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
	return func() {
		// The children of the killed processes become children of this process in turn.
		for list := children(); len(list) > 0; list = children() {
			for _, pid := range list {
				_ = syscall.Kill(pid, syscall.SIGKILL)
				_, _ = syscall.Wait4(pid, nil, 0, nil)
			}
		}
	}
}

// children lists the child processes of all threads; none if the kernel does not support it.
func children() (pids []int) {
	lists, _ := filepath.Glob("/proc/self/task/*/children") // the pattern is valid
	for _, path := range lists {
		text, err := os.ReadFile(path)
		if err != nil {
			continue // the thread has ended
		}
		for _, f := range strings.Fields(string(text)) {
			if pid, err := strconv.Atoi(f); err == nil {
				pids = append(pids, pid)
			}
		}
	}
	return pids
}
