//go:build unix

package launch

import (
	"os"
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
	n   int
	cmd *exec.Cmd

	mu    sync.Mutex
	alive bool // not reaped, so that its process id is still its own

	pipes   []*os.File // read ends
	readers sync.WaitGroup
}

// start starts a rank's process. The calling thread must outlive the process.
func (j *job) start(n int, env []string) (*rank, error) {
	r := &rank{n: n, cmd: exec.Command(j.cfg.Command[0], j.cfg.Command[1:]...)}
	r.cmd.Env = env
	r.cmd.Dir = j.cfg.Dir
	// The rank leads a process group, so that Run can also end the processes that it starts. The group is
	// in the background of the terminal and cannot read from it; several ranks could not share it anyway.
	r.cmd.SysProcAttr = attributes()
	var theirs []*os.File
	defer func() {
		for _, f := range theirs {
			_ = f.Close()
		}
	}()
	for _, stderr := range []bool{false, true} {
		ours, their, err := os.Pipe()
		if err != nil {
			r.closePipes()
			return nil, err
		}
		r.pipes, theirs = append(r.pipes, ours), append(theirs, their)
		w := j.cfg.Stdout
		if stderr {
			w, r.cmd.Stderr = j.cfg.Stderr, their
		} else {
			r.cmd.Stdout = their
		}
		r.readers.Go(func() { copyLines(&j.out, w, ours, j.cfg.Prefix(n, stderr)) })
	}
	if err := r.cmd.Start(); err != nil {
		r.closePipes()
		return nil, err
	}
	r.alive = true
	return r, nil
}

func (r *rank) closePipes() {
	for _, p := range r.pipes {
		_ = p.Close()
	}
}

// wait returns once the process has ended, the rest of its group has been killed, and its output has been
// copied.
func (r *rank) wait() *RankError {
	r.reap()
	read := make(chan struct{})
	go func() { r.readers.Wait(); close(read) }()
	select {
	case <-read:
	case <-time.After(drain):
	}
	r.closePipes()
	<-read
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
