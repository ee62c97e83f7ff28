package cli

import (
	"errors"
	"fmt"
	"strings"
)

// The exit statuses of every subcommand. "allcast run" also passes on other statuses of its ranks.
const (
	StatusOK     = 0 // done and verified
	StatusFailed = 1 // the job failed
	StatusUsage  = 2 // usage or bad input
	StatusWrong  = 3 // data was wrong
)

// StatusError ends the command with an exit status after all messages have been printed.
type StatusError int

func (e StatusError) Error() string { return fmt.Sprintf("exit status %d", int(e)) }

// UsageError is a mistake that the user can fix. The job was not started.
type UsageError struct {
	Msg string
	See string // command that explains more, if any
}

func (e *UsageError) Error() string {
	if e.See == "" {
		return e.Msg
	}
	return fmt.Sprintf("%s\n(see %s)", e.Msg, e.See)
}

// Usagef is a usage error about a flag's value, found after parsing.
func Usagef(format string, args ...any) error {
	return &UsageError{Msg: fmt.Sprintf(format, args...)}
}

// exitStatus prints the error, unless it is a bare status, and returns the exit status.
func (e *Env) exitStatus(err error) int {
	if err == nil {
		return StatusOK
	}
	if status, ok := errors.AsType[StatusError](err); ok {
		return int(status)
	}
	e.Message("%v", err)
	if _, ok := errors.AsType[*UsageError](err); ok {
		return StatusUsage
	}
	return StatusFailed
}

// Message prints a line for people on stderr, because stdout is for results. A failed write has nowhere to be reported.
// Errors of package allcast begin with the line's prefix already.
func (e *Env) Message(format string, args ...any) {
	const prefix = "allcast: "
	_, _ = fmt.Fprintln(e.Stderr, prefix+strings.TrimPrefix(fmt.Sprintf(format, args...), prefix))
}
