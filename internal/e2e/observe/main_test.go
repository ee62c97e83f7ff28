//go:build unix

// Package observe looks at running ranks from outside: what they cost, and what they answer.
package observe

import (
	"os"
	"testing"

	"github.com/allcast/allcast/internal/e2e"
)

func TestMain(m *testing.M) {
	os.Exit(e2e.Main(m, map[string]func() int{"gather": e2e.Gather, "idle": idle}))
}
