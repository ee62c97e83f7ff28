//go:build unix && !linux

package launch

import "syscall"

// attributes make a process the leader of a new group.
func attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// reap waits for the process and its output, and kills the rest of its group. In between, the process id could
// be reused, which is very unlikely on systems that assign ids in sequence.
func (r *rank) reap() {
	_ = r.cmd.Wait() // ProcessState has the result
	r.mu.Lock()
	defer r.mu.Unlock()
	killGroup(r.cmd.Process.Pid, syscall.SIGKILL)
	r.alive = false
}

// Adopt does nothing, because a process cannot become the parent of its grandchildren here.
func Adopt() (end func()) { return func() {} }
