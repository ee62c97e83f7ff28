package launch

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Adopt makes this process the parent of whatever its ranks leave behind, also
// of what has left their process groups, and returns a function that kills all of that. It is for a
// process that does nothing but run a job: all its other children are killed too.
func Adopt() (end func()) {
	// Without it (a kernel before 3.4) the groups are killed all the same.
	_ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
	return func() {
		// The children of what is killed become ours in turn.
		for list := children(); len(list) > 0; list = children() {
			for _, pid := range list {
				_ = syscall.Kill(pid, syscall.SIGKILL)
				_, _ = syscall.Wait4(pid, nil, 0, nil)
			}
		}
	}
}

// children lists our processes, of all threads; none where the kernel does not tell.
func children() (pids []int) {
	lists, _ := filepath.Glob("/proc/self/task/*/children") // the pattern is a good one
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
