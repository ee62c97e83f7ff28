package lab

import (
	"io"
	"os/exec"
)

// Options are the options of Up.
type Options struct {
	// Self is the command that runs this program's "hold" and "enter".
	Self []string
	// Stay leaves the lab up when this process ends.
	Stay bool
	// Log receives messages for the user; may be nil.
	Log func(format string, args ...any)
}

// Job is a command that runs as one rank per host.
type Job struct {
	Command        []string
	Self           []string // as in Options
	Stdout, Stderr io.Writer
	Log            func(format string, args ...any) // receives messages for the user
}

// Check checks that the command exists, before a lab is built for it.
func (j *Job) Check() error {
	if len(j.Command) == 0 {
		return configError("no command to run")
	}
	path, err := exec.LookPath(j.Command[0])
	if err != nil {
		return configError("cannot start the program: %w", err)
	}
	j.Command = append([]string{path}, j.Command[1:]...)
	return nil
}
