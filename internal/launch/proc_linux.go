package launch

import (
	"errors"
	"syscall"

	"golang.org/x/sys/unix"
)

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
	r.mu.Lock()
	defer r.mu.Unlock()
	// Once the process is reaped, its id may belong to another process.
	killGroup(pid, syscall.SIGKILL)
	_ = r.cmd.Wait() // ProcessState has the result
	r.alive = false
}
