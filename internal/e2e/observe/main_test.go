//go:build unix

// Package observe observes running ranks from outside: their processor time and their answers.
package observe

import (
	"os"
	"testing"

	"github.com/allcast/allcast/internal/e2e"
)

func TestMain(m *testing.M) {
	os.Exit(e2e.Main(m, map[string]func() int{"gather": e2e.Gather, "idle": idle}))
}
