//go:build linux

package main

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
)

// A row runs commands and compares what they measured.
type row struct {
	name    string
	about   string
	needs   []need
	rounds  int    // number of rounds, where the command line's does not suit the row
	unit    string // of compared values; empty: us
	given   values // values that are known without a measurement, such as the time at line rate
	runs    []measurement
	derive  func(values) // adds values that are computed from those of the same round; may be nil
	figures []figure
}

// A measurement is a command that a row runs once per round.
type measurement struct {
	// name is the name of its values. In it, words in braces such as {algo} and {size} stand for those of a
	// result, so that one command can measure several; each reader says which.
	name string
	// line is the command line. It starts with allcast or with go run ./PACKAGE, and is repeatable as it is.
	line string
	// read returns the values in the command's output; nil: those of "allcast perf --json".
	read reader
	// judges says that exit status 1 means a figure that is not as wanted: the output is complete.
	judges bool
}

// values are the results of one round, by name. Times are in us.
type values map[string]float64

func (v values) String() string {
	var b strings.Builder
	for i, name := range slices.Sorted(maps.Keys(v)) {
		if i > 0 {
			b.WriteString("; ")
		}
		fmt.Fprintf(&b, "%s: %.4g", name, v[name])
	}
	return b.String()
}

// A figure is a value over another one of the same round, or a value alone.
type figure struct {
	name string
	of   string // name of a value
	// to is the name of the value that it is divided by, if any. Of several, it is the one with the smallest
	// median: the smallest of each round would be a matter of luck.
	to              []string
	scale           float64 // divisor of the figure; 0: 1
	unit            string
	atMost, atLeast float64 // what is wanted of the median; 0: nothing
}

// over returns a figure that compares two values.
func over(name, of string, to ...string) figure { return figure{name: name, of: of, to: to, unit: "x"} }

// most returns the figure with a wanted upper limit.
func (f figure) most(limit float64) figure {
	f.atMost = limit
	return f
}

// least returns the figure with a wanted lower limit.
func (f figure) least(limit float64) figure {
	f.atLeast = limit
	return f
}

func (f *figure) wanted() string {
	switch {
	case f.atMost > 0:
		return fmt.Sprintf("at most %g", f.atMost)
	case f.atLeast > 0:
		return fmt.Sprintf("at least %g", f.atLeast)
	}
	return ""
}

// met says whether the figure is as wanted.
func (f *figure) met(median float64) bool {
	return (f.atMost == 0 || median <= f.atMost) && (f.atLeast == 0 || median >= f.atLeast)
}

// values computes the figure of each round.
func (f *figure) values(rounds []values) ([]float64, error) {
	of, err := column(rounds, f.of)
	if err != nil {
		return nil, fmt.Errorf("figure %q: %w", f.name, err)
	}
	var base []float64
	for _, name := range f.to {
		to, err := column(rounds, name)
		if err != nil {
			return nil, fmt.Errorf("figure %q: %w", f.name, err)
		}
		if slices.Min(to) <= 0 {
			return nil, fmt.Errorf("figure %q: %q is not positive", f.name, name)
		}
		if base == nil || newSpread(to).Median < newSpread(base).Median {
			base = to
		}
	}
	for i := range of {
		if base != nil {
			of[i] /= base[i]
		}
		if f.scale != 0 {
			of[i] /= f.scale
		}
	}
	return of, nil
}

// column returns a value of all rounds.
func column(rounds []values, name string) ([]float64, error) {
	c := make([]float64, len(rounds))
	for i, v := range rounds {
		x, ok := v[name]
		if !ok {
			return nil, fmt.Errorf("no run measured %q", name)
		}
		c[i] = x
	}
	return c, nil
}

// A need is a condition without which a row cannot be measured. Its error is the reason.
type need func() error

func root() error {
	if os.Geteuid() != 0 {
		return errors.New("the lab needs root")
	}
	return nil
}

// cores needs that many processors.
func cores(n int) need {
	return func() error {
		if runtime.NumCPU() < n {
			return fmt.Errorf("%d processors are needed, and there are %d", n, runtime.NumCPU())
		}
		return nil
	}
}

// program needs an installed program.
func program(name string) need {
	return func() error {
		_, err := exec.LookPath(name)
		return err
	}
}

// missing returns the reason why a row cannot be measured on this machine.
func (r *row) missing() error {
	for _, n := range r.needs {
		if err := n(); err != nil {
			return err
		}
	}
	return nil
}

// perf is a run of "allcast perf".
func perf(name, args string) measurement {
	return measurement{name: name, line: "allcast perf " + args + " --json"}
}

// inLab is a run of "allcast perf" with one rank per host of a lab. network holds a topology and other
// flags of the lab.
func inLab(name, network, args string) measurement {
	return measurement{
		name: name,
		line: "allcast lab run --json --topology " + network + " -- allcast perf " + args + " --json",
	}
}
