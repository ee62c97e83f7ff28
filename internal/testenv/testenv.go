// Package testenv tells tests about their environment, and skips tests that it does not support.
package testenv

import (
	"os"
	"runtime"
	"testing"
	"time"
)

// Large returns n, or an eighth of n with the race detector, which makes everything slow.
func Large(n int) int {
	if Race {
		return n / 8
	}
	return n
}

// NoCalibration turns the benchmark of Join off, unless the environment asks for it: tests join often,
// and count what they send.
func NoCalibration() {
	if os.Getenv("ALLCAST_CALIBRATE") == "" {
		_ = os.Setenv("ALLCAST_CALIBRATE", "off")
	}
}

// NeedRoot skips a test unless it runs as root.
func NeedRoot(t testing.TB, why string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skipf("not root: %s", why)
	}
}

// NeedVar skips a test that runs only on request, unless the environment variable is set.
func NeedVar(t testing.TB, name, why string) {
	t.Helper()
	if os.Getenv(name) == "" {
		t.Skipf("%s is not set: %s", name, why)
	}
}

// Soon polls until a condition holds, for at most 20 s. It is for state of other processes and of the
// kernel, which does not tell when it changes.
func Soon(f func() bool) bool {
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); runtime.Gosched() {
		if f() {
			return true
		}
		time.Sleep(time.Millisecond)
	}
	return f()
}
