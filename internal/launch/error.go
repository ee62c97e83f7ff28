package launch

import (
	"fmt"
	"os"
	"syscall"
)

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
