package launch

import (
	"errors"
	"fmt"
	"io"
	"os"
	"time"
)

// MaxRanks is how many processes one Run starts at most: each takes a few file
// descriptors here, and more would hardly get anything done on one machine.
const MaxRanks = 1024

// ErrConfig marks a job that makes no sense; nothing was started.
var ErrConfig = errors.New("bad job")

// Config says what to run.
type Config struct {
	Ranks   int
	Command []string // program and arguments
	Env     []string // of the processes, besides what tells the rank; nil: ours
	Dir     string   // working directory; "": ours
	Procs   int      // GOMAXPROCS, if the environment has none: a rank's share of the processors, but at least that

	// Stdout and Stderr get whole lines, one Write each, and never two at a time.
	Stdout, Stderr io.Writer
	// Prefix is put before every line of a rank; nil: "[rank] ".
	Prefix func(rank int, stderr bool) string

	// Signals are forwarded to all ranks; nil: none are.
	Signals <-chan os.Signal
	// Started is told the process of each rank, once it runs; may be nil.
	Started func(rank, pid int)
	// Failed is told which failure ends the job, before the others are ended; may be nil.
	Failed func(*RankError)

	// Notice is how long the other ranks may take to end by themselves after the first
	// failure, and to say what they saw of it; 0: a second.
	Notice time.Duration
	// Grace is how long a rank has between SIGTERM and SIGKILL; 0: three seconds.
	Grace time.Duration
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
	if c.Stdout == nil {
		c.Stdout = io.Discard
	}
	if c.Stderr == nil {
		c.Stderr = io.Discard
	}
	if c.Notice == 0 {
		c.Notice = time.Second
	}
	if c.Grace == 0 {
		c.Grace = 3 * time.Second
	}
	return nil
}
