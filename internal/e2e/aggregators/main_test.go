//go:build linux

// Package aggregators kills, stops and restarts aggregators, and checks what that does to reductions.
package aggregators

import (
	"fmt"
	"os"
	"testing"

	"github.com/allcast/allcast/internal/e2e"
	"github.com/allcast/allcast/internal/e2e/aggregator"
	"github.com/allcast/allcast/internal/lab"
)

var roles = map[string]func() int{
	"enter":  enterLab,
	"reduce": reduce,
}

// The lab starts the test binary as its holder and as its aggregators.
func TestMain(m *testing.M) {
	var err error
	switch args := os.Args[1:]; {
	case len(args) == 2 && args[0] == "hold":
		err = lab.Hold(args[1], os.Stdin, os.Stdout)
	case len(args) > 1 && args[0] == "aggregator":
		err = aggregator.Run(args[1:])
	default:
		os.Exit(e2e.Main(m, roles))
	}
	_, _ = fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}
