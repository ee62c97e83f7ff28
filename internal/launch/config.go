// Package launch runs a program once per rank, on this machine (Run) or on several (RunHosts). It tells each process
// its rank, copies its output line by line, ends all processes when one fails, and leaves none behind.
//
// On several machines, RunHosts starts one agent per machine through ssh. An agent runs the ranks of its machine by
// Run. The job, with its key and its environment, reaches the agent on standard input, so that no command line shows
// the key. An agent whose connection breaks ends its ranks.
package launch

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
	"time"
)

// MaxRanks limits the processes of one Run. Each takes a few file descriptors, and more would make hardly
// any progress on one machine.
const MaxRanks = 1024

// ErrConfig marks an invalid Config; Run has started nothing.
var ErrConfig = errors.New("bad job")

// Config describes a job.
type Config struct {
	Ranks   int
	Command []string // program and arguments
	Env     []string // without the variables of ranks; nil for the environment of this process
	Dir     string   // working directory; "" for that of this process
	Procs   int      // lower bound of GOMAXPROCS, which is a rank's share of the processors unless Env sets it

	// Part describes the job of which these ranks are a part; nil if they are all.
	Part *Part

	// KeepGoing lets the other ranks go on when one fails.
	KeepGoing bool

	// Stdout and Stderr get whole lines, by one Write per line. The Writes never overlap.
	Stdout, Stderr io.Writer
	// Prefix returns the start of every line of a rank; nil for "[rank] ".
	Prefix func(rank int, stderr bool) string

	// Signals are forwarded to all ranks; nil for none.
	Signals <-chan os.Signal
	// Started is called with the process of each rank, once it runs; may be nil.
	Started func(rank, pid int)
	// Failed is called with the failure that ends the job, before the other ranks end, or with every failure if
	// KeepGoing; may be nil.
	Failed func(*RankError)

	// Notice is how long the other ranks may take to report the first failure and to end by themselves; 0
	// for one second.
	Notice time.Duration
	// Grace is how long a rank has between SIGTERM and SIGKILL; 0 for three seconds.
	Grace time.Duration
}

// A Part is the place of some ranks in a larger job.
type Part struct {
	First, Size int    // the first rank, and the number of ranks of the whole job
	Addr        string // host:port at which rank 0 will listen
	Key         []byte
}

func (c *Config) complete() error {
	switch {
	case c.Ranks < 1 || c.Ranks > MaxRanks:
		return fmt.Errorf("%w: %d ranks: want 1 to %d", ErrConfig, c.Ranks, MaxRanks)
	case len(c.Command) == 0 || c.Command[0] == "":
		return fmt.Errorf("%w: no program to run", ErrConfig)
	}
	if c.Env == nil {
		c.Env = os.Environ()
	}
	if c.Prefix == nil {
		c.Prefix = func(rank int, _ bool) string { return fmt.Sprintf("[%d] ", rank) }
	}
	c.Stdout, c.Stderr = cmp.Or(c.Stdout, io.Discard), cmp.Or(c.Stderr, io.Discard)
	c.Notice, c.Grace = cmp.Or(c.Notice, time.Second), cmp.Or(c.Grace, 3*time.Second)
	return nil
}

// A RankError is the first failure, which ended the job.
type RankError struct {
	Rank   int
	Code   int            // exit status; -1 if a signal ended the process
	Signal syscall.Signal // that signal
}

func (e *RankError) Error() string {
	if e.Code < 0 {
		return fmt.Sprintf("rank %d was ended by a signal: %v", e.Rank, e.Signal)
	}
	return fmt.Sprintf("rank %d exited with status %d", e.Rank, e.Code)
}

// A StartError says that a rank's program could not be started.
type StartError struct {
	Rank int
	Err  error
}

func (e *StartError) Error() string { return fmt.Sprintf("rank %d: %v", e.Rank, e.Err) }

// Unwrap returns why.
func (e *StartError) Unwrap() error { return e.Err }

// failure describes how a process failed; nil if it did not.
func failure(rank int, s *os.ProcessState) *RankError {
	if s.Success() {
		return nil
	}
	e := &RankError{Rank: rank, Code: s.ExitCode()}
	if w, ok := s.Sys().(syscall.WaitStatus); ok && w.Signaled() {
		e.Signal = w.Signal()
	}
	return e
}
