//go:build unix

package launch

import (
	"context"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"sync"
	"syscall"
	"time"
)

// job is a Run under way.
type job struct {
	cfg    Config
	out    sync.Mutex // held while a line is written
	ranks  []*rank
	first  *RankError // failure that ended the job
	stage  stage
	timer  *time.Timer
	breaks int  // number of signals that ask to stop
	ended  bool // by the context
}

// stage is the progress of ending a job.
type stage int

const (
	running  stage = iota
	noticed        // a rank has failed; the others may end by themselves
	asked          // all ranks have been sent SIGTERM
	finished       // all ranks have been sent SIGKILL
)

// Run starts the ranks and waits for all of them. The first failure ends the other ranks and is the error
// (a *RankError). The end of ctx ends all ranks. When Run returns, no process of the ranks' process groups
// is left.
func Run(ctx context.Context, cfg Config) error {
	if err := cfg.complete(); err != nil {
		return err
	}
	if _, err := exec.LookPath(cfg.Command[0]); err != nil {
		return &StartError{Err: err}
	}
	env, err := cfg.environment()
	if err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() {
		// The kernel kills the ranks when the thread that started them ends (see attributes). Therefore
		// this goroutine keeps a thread of its own until all ranks have ended.
		runtime.LockOSThread()
		j := &job{cfg: cfg}
		ended <- j.run(ctx, env)
	}()
	return <-ended
}

func (j *job) run(ctx context.Context, env func(rank int) []string) error {
	j.timer = time.NewTimer(time.Hour)
	j.timer.Stop()
	exits := make(chan *RankError, j.cfg.Ranks)
	var failed error
	for n := range j.cfg.Ranks {
		rank := n
		if j.cfg.Part != nil {
			rank += j.cfg.Part.First
		}
		r, err := j.start(rank, env(n))
		if err != nil {
			failed = &StartError{Rank: rank, Err: err}
			j.advance(finished)
			break
		}
		j.ranks = append(j.ranks, r)
		if j.cfg.Started != nil {
			j.cfg.Started(rank, r.cmd.Process.Pid)
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
			done, j.ended = nil, j.first == nil
			j.advance(max(j.stage, asked))
		}
	}
	switch {
	case failed != nil:
		return failed
	case j.ended:
		return ctx.Err()
	case j.first != nil:
		return j.first
	}
	return nil
}

func (j *job) exited(e *RankError) {
	if e == nil || j.ended || j.first != nil && !j.cfg.KeepGoing {
		return
	}
	if j.first == nil {
		j.first = e
	}
	if j.cfg.Failed != nil {
		j.cfg.Failed(e)
	}
	if j.stage == running && !j.cfg.KeepGoing {
		j.advance(noticed)
	}
}

// advance enters a stage.
func (j *job) advance(to stage) {
	j.stage = to
	switch to {
	case noticed:
		j.timer.Reset(j.cfg.Notice)
	case asked:
		j.all(syscall.SIGTERM)
		j.all(syscall.SIGCONT) // a stopped process handles SIGTERM only once it continues
		j.timer.Reset(j.cfg.Grace)
	case finished:
		j.all(syscall.SIGKILL)
	}
}

// forward sends a signal to all ranks. The second request to stop ends the job even if ranks ignore it.
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
		if j.cfg.Part != nil { // the signal came from another process, whose next message this process has to read
			return
		}
		// The signal is caught, so this process has to stop itself.
		_ = syscall.Kill(syscall.Getpid(), syscall.SIGSTOP)
	}
}

func (j *job) all(s syscall.Signal) {
	for _, r := range j.ranks {
		r.signal(s)
	}
}

// Notify returns a channel for Config.Signals with the signals that concern a job, and a function that
// stops the delivery.
func Notify() (signals <-chan os.Signal, stop func()) {
	c := make(chan os.Signal, 16)
	for _, s := range []os.Signal{
		syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM,
		syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGTSTP, syscall.SIGCONT,
	} {
		// A signal that is ignored, as under nohup, stays ignored.
		if !signal.Ignored(s) {
			signal.Notify(c, s)
		}
	}
	return c, func() { signal.Stop(c) }
}
