//go:build unix

// Package deaths kills, stops and cuts off ranks, and checks how the other ranks react.
package deaths

import (
	"fmt"
	"os"
	"testing"

	"github.com/allcast/allcast/internal/e2e"
	"github.com/allcast/allcast/internal/lab"
)

var roles = map[string]func() int{
	"gather":  e2e.Gather,
	"survive": survive,
	"rejoin":  rejoin,
	"enter":   enterLab,
	"strike":  strikeRole,
}

func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == "hold" { // the process that holds a lab
		if err := lab.Hold(os.Args[2], os.Stdin, os.Stdout); err != nil {
			_, _ = fmt.Fprintln(os.Stderr, err)
		}
		os.Exit(1)
	}
	os.Exit(e2e.Main(m, roles))
}
