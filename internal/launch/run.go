//go:build unix

package launch

import (
	"context"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"
)

// job is a Run under way.
type job struct {
	cfg    Config
	out    output
	ranks  []*rank
	first  *RankError // what ended the job
	stage  stage
	timer  *time.Timer
	breaks int  // how often we were asked to stop
	called bool // off, by the context
}

// stage is how far the end of a job has come.
type stage int

const (
	running  stage = iota
	noticed        // one has failed; the others may end by themselves
	asked          // SIGTERM was sent
	finished       // SIGKILL was sent
)

// Run starts the ranks and waits for all of them. The first that fails ends the
// others, and is the error (a *RankError). When ctx ends, all are ended. When Run
// returns, none of the processes is left, nor what they started, if it did not
// leave their process groups.
func Run(ctx context.Context, cfg Config) error {
	if err := cfg.complete(); err != nil {
		return err
	}
	if _, err := exec.LookPath(cfg.Command[0]); err != nil {
		return &StartError{Err: err}
	}
	env, err := environment(cfg.Env, cfg.Ranks, cfg.Procs)
	if err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() {
		// The kernel kills the ranks when the thread that started them ends (see
		// attributes): it must be this goroutine's alone, and wait with it for all of them.
		runtime.LockOSThread()
		j := &job{cfg: cfg}
		ended <- j.run(ctx, env)
	}()
	return <-ended
}

func (j *job) run(ctx context.Context, env []string) error {
	j.timer = time.NewTimer(time.Hour)
	j.timer.Stop()
	exits := make(chan *RankError, j.cfg.Ranks)
	var failed error
	for n := range j.cfg.Ranks {
		r, err := j.start(n, env)
		if err != nil {
			failed = &StartError{Rank: n, Err: err}
			j.advance(finished)
			break
		}
		j.ranks = append(j.ranks, r)
		if j.cfg.Started != nil {
			j.cfg.Started(n, r.cmd.Process.Pid)
		}
		go func() { exits <- r.wait() }()
	}
	done := ctx.Done()
	for left := len(j.ranks); left > 0; {
		select {
		case e := <-exits:
			left--
			j.exited(e)
		case s := <-j.cfg.Signals:
			j.forward(s)
		case <-j.timer.C:
			j.advance(j.stage + 1)
		case <-done:
			done, j.called = nil, j.first == nil
			j.advance(max(j.stage, asked))
		}
	}
	switch {
	case failed != nil:
		return failed
	case j.called:
		return ctx.Err()
	case j.first != nil:
		return j.first
	}
	return nil
}

func (j *job) exited(e *RankError) {
	if e == nil || j.first != nil || j.called {
		return
	}
	j.first = e
	if j.cfg.Failed != nil {
		j.cfg.Failed(e)
	}
	if j.stage == running {
		j.advance(noticed)
	}
}

// advance takes the next step to the end of all ranks.
func (j *job) advance(to stage) {
	j.stage = to
	switch to {
	case noticed:
		j.timer.Reset(j.cfg.Notice)
	case asked:
		j.all(syscall.SIGTERM)
		j.all(syscall.SIGCONT) // a stopped process gets it only then
		j.timer.Reset(j.cfg.Grace)
	case finished:
		j.all(syscall.SIGKILL)
	}
}

// forward passes a signal on. Who asks a second time to stop means it.
func (j *job) forward(s os.Signal) {
	sig, ok := s.(syscall.Signal)
	if !ok {
		return
	}
	j.all(sig)
	switch sig {
	case syscall.SIGINT, syscall.SIGTERM, syscall.SIGQUIT, syscall.SIGHUP:
		if j.breaks++; j.breaks > 1 && j.stage < asked {
			j.advance(asked)
		}
	case syscall.SIGTSTP:
		// Having caught it, we go on otherwise.
		_ = syscall.Kill(syscall.Getpid(), syscall.SIGSTOP)
	}
}

func (j *job) all(s syscall.Signal) {
	for _, r := range j.ranks {
		r.signal(s)
	}
}
