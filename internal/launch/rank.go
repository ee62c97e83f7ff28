//go:build unix

package launch

import (
	"os/exec"
	"sync"
	"syscall"
	"time"
)

// drain is how long Run reads the output of a rank that has ended. The output is in the pipe already;
// only a process that left the rank's group can keep the pipe open.
const drain = 500 * time.Millisecond

// rank is one process and the group it leads.
type rank struct {
	n              int
	cmd            *exec.Cmd
	stdout, stderr lines

	mu    sync.Mutex
	alive bool // not reaped, so that its process id is still its own
}

// start starts a rank's process. The calling thread must outlive the process.
func (j *job) start(n int, env []string) (*rank, error) {
	r := &rank{
		n: n, cmd: exec.Command(j.cfg.Command[0], j.cfg.Command[1:]...), alive: true,
		stdout: newLines(&j.out, j.cfg.Stdout, j.cfg.Prefix(n, false)),
		stderr: newLines(&j.out, j.cfg.Stderr, j.cfg.Prefix(n, true)),
	}
	r.cmd.Env, r.cmd.Dir = env, j.cfg.Dir
	r.cmd.Stdout, r.cmd.Stderr, r.cmd.WaitDelay = &r.stdout, &r.stderr, drain
	// The rank leads a process group, so that Run can also end the processes that it starts. The group is
	// in the background of the terminal and cannot read from it; several ranks could not share it anyway.
	r.cmd.SysProcAttr = attributes()
	return r, r.cmd.Start()
}

// wait returns once the process has ended, the rest of its group has been killed, and its output has been
// copied.
func (r *rank) wait() *RankError {
	r.reap()
	r.stdout.end()
	r.stderr.end()
	return failure(r.n, r.cmd.ProcessState)
}

// signal sends a signal to the whole group, unless it has ended.
func (r *rank) signal(s syscall.Signal) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.alive {
		killGroup(r.cmd.Process.Pid, s)
	}
}

// killGroup ignores that the group may be gone.
func killGroup(leader int, s syscall.Signal) { _ = syscall.Kill(-leader, s) }
