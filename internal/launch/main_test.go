//go:build unix

package launch

import (
	"context"
	"fmt"
	"os"
	"testing"
)

// asLauncher makes the test binary run a job and print the pids of its ranks, so that a test can kill it.
const asLauncher = "LAUNCH_TEST_LAUNCHER"

func TestMain(m *testing.M) {
	if os.Getenv(asLauncher) != "" {
		err := Run(context.Background(), Config{
			Ranks: 3, Command: []string{"sleep", "1000"},
			Started: func(_, pid int) { _, _ = fmt.Fprintln(os.Stdout, pid) },
		})
		_, _ = fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}
