package main

import (
	"errors"
	"fmt"
)

// The exit statuses, the same for every subcommand.
const (
	statusOK     = 0 // done and verified
	statusFailed = 1 // the job failed
	statusUsage  = 2 // usage or bad input
	statusWrong  = 3 // data was wrong
)

// usageError is the user's to mend: the job was not started.
type usageError struct {
	msg string
	see string // the command that explains it
}

func (e *usageError) Error() string {
	if e.see == "" {
		return e.msg
	}
	return fmt.Sprintf("%s\n(see %s)", e.msg, e.see)
}

// statusError ends the command with a status once everything has been said.
type statusError int

func (e statusError) Error() string { return fmt.Sprintf("exit status %d", int(e)) }

// fail says what went wrong and turns it into the exit status.
func (a *app) fail(err error) int {
	var (
		usage  *usageError
		status statusError
	)
	switch {
	case err == nil:
		return statusOK
	case errors.As(err, &status):
		return int(status)
	case errors.As(err, &usage):
		a.message("%v", err)
		return statusUsage
	default:
		a.message("%v", err)
		return statusFailed
	}
}

// worse picks the status that matters more when several jobs ran: wrong data,
// which went unnoticed, before a failure, which did not.
func worse(a, b int) int { return max(a, b) }

// message speaks to people; stdout is for results. That it cannot be printed
// could not be said anywhere.
func (a *app) message(format string, args ...any) {
	_, _ = fmt.Fprintf(a.stderr, "allcast: "+format+"\n", args...)
}
