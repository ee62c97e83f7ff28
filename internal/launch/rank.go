//go:build unix

package launch

import (
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"
)

// drain is how long we read on after a rank has ended. What it wrote is there
// already; only a process that left its group can hold the pipe open.
const drain = 500 * time.Millisecond

// rank is one process and the group it leads.
type rank struct {
	n   int
	cmd *exec.Cmd

	mu    sync.Mutex
	alive bool // not reaped: the number of the process is still its own

	pipes   []*os.File // our ends
	readers sync.WaitGroup
}

// start runs a rank's process. It must be called on a thread that outlives it.
func (j *job) start(n int, env []string) (*rank, error) {
	r := &rank{n: n, cmd: exec.Command(j.cfg.Command[0], j.cfg.Command[1:]...)}
	r.cmd.Env = rankEnv(env, n)
	r.cmd.Dir = j.cfg.Dir
	// A group of its own, so that what it starts can be ended with it. It is in the
	// background of our terminal then and could not read from it; nor could all.
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
		r.readers.Go(func() { j.out.copyLines(w, ours, j.cfg.Prefix(n, stderr)) })
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

// wait returns when the process has ended, everything it left behind in its group
// has been killed, and its output has been passed on.
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

// signal sends a signal to the whole group, if it still is there.
func (r *rank) signal(s syscall.Signal) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.alive {
		killGroup(r.cmd.Process.Pid, s)
	}
}

// killGroup has nobody to tell that the group is gone.
func killGroup(leader int, s syscall.Signal) { _ = syscall.Kill(-leader, s) }
