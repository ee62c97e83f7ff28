package lab

import (
	"io"
	"os/exec"
)

// Options are the options of Up.
type Options struct {
	// Self is the command that runs this program's "hold" and "enter".
	Self []string
	// Aggregator is the command that runs this program's "aggregator"; needed with Config.Inc.
	Aggregator []string
	// Stay leaves the lab up when this process ends.
	Stay bool
	// Log receives messages for the user; may be nil.
	Log func(format string, args ...any)
	// Progress receives the share of the network that is built, from 0 to 1; may be nil. Calls do not overlap.
	Progress func(share float64)
}

// Job is a command that runs as one rank per host.
type Job struct {
	Command        []string
	Self           []string // as in Options
	Stdout, Stderr io.Writer
	Log            func(format string, args ...any) // receives messages for the user
}

// Check checks that the command exists, before a lab is built for it.
func (j *Job) Check() (err error) {
	j.Command, err = findProgram(j.Command)
	return err
}

// findProgram replaces the name of a command's program by its path.
func findProgram(command []string) ([]string, error) {
	if len(command) == 0 {
		return nil, configError("no command to run")
	}
	path, err := exec.LookPath(command[0])
	if err != nil {
		return nil, configError("cannot start the program: %w", err)
	}
	return append([]string{path}, command[1:]...), nil
}
