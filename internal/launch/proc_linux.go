package launch

import (
	"errors"
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

// attributes make a process the leader of a new group. The kernel kills the process when the thread that
// started it ends, even if this process is killed.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// reap waits for the process, kills the rest of its group, and then reaps the process.
func (r *rank) reap() {
	pid := r.cmd.Process.Pid
	for errors.Is(unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil), unix.EINTR) {
	}
	// Once the process is reaped, its id may belong to another process.
	r.mu.Lock()
	killGroup(pid, syscall.SIGKILL)
	r.alive = false
	r.mu.Unlock()
	_ = r.cmd.Wait() // ProcessState has the result
}
