// Command allcast runs, simulates and models multicast collectives.
package main

import (
	"io"
	"os"

	"github.com/allcast/allcast/internal/sim"
)

func main() {
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

// run is the whole command, apart from the process: it returns the exit status.
func run(args []string, stdout, stderr io.Writer) int {
	a := &app{stdout: stdout, stderr: stderr, simulate: sim.Run}
	return a.run(args)
}

// app is what every subcommand needs from outside.
type app struct {
	stdout, stderr io.Writer
	simulate       func(sim.Config) (*sim.Result, error) // sim.Run; tests put their own here
	json           bool
	args           []string // as given: ranks of our own get the same
}
