//go:build unix && !linux

package launch

import "syscall"

// attributes make a process the leader of a new group.
func attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// reap waits for the process and kills what is left of its group. For a moment its
// number could be somebody else's, which systems that number in sequence make
// most unlikely.
func (r *rank) reap() {
	_ = r.cmd.Wait() // the state says it all
	r.mu.Lock()
	defer r.mu.Unlock()
	killGroup(r.cmd.Process.Pid, syscall.SIGKILL)
	r.alive = false
}
