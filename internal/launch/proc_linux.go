package launch

import (
	"errors"
	"syscall"

	"golang.org/x/sys/unix"
)

// attributes make a process the leader of a new group that the kernel kills when the
// thread that started it ends, also when nobody could do it any more because we
// have been killed ourselves.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// reap waits for the process, kills what is left of its group, and forgets it.
func (r *rank) reap() {
	pid := r.cmd.Process.Pid
	for errors.Is(unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil), unix.EINTR) {
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	// Before the process is reaped: later, its number may be somebody else's.
	killGroup(pid, syscall.SIGKILL)
	_ = r.cmd.Wait() // the state says it all
	r.alive = false
}
