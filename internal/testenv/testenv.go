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

// PatientRanks lets ranks of this process and its children wait longer for each other than users' ranks do, unless the
// environment or an option says otherwise: on a busy machine a rank may be silent for long, and is not lost.
func PatientRanks() {
	if os.Getenv("ALLCAST_TIMEOUT") == "" {
		_ = os.Setenv("ALLCAST_TIMEOUT", "60s")
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

// soakVar makes tests run that wait for timeouts, or that try more than one run of the tests has time for.
const soakVar = "ALLCAST_TEST_SOAK"

// Soak skips a test, unless the environment asks for a long run. It is for tests whose result depends on time, such
// as those of stopped ranks, which others notice by their silence.
func Soak(t testing.TB, why string) {
	t.Helper()
	if !Soaking() {
		t.Skipf("%s: run by make soak (%s=1)", why, soakVar)
	}
}

// Soaking reports whether the environment asks for a long run, which includes tests whose result depends on time.
func Soaking() bool { return os.Getenv(soakVar) != "" }

// Patience is how long tests wait for what must happen. It only turns a hang into a failure: no test may depend on
// how fast the machine is.
const Patience = 30 * time.Second

// Soon polls until a condition holds, for as long as Patience. It is for state of other processes and of the
// kernel, which does not tell when it changes.
func Soon(f func() bool) bool {
	for end := time.Now().Add(Patience); time.Now().Before(end); runtime.Gosched() {
		if f() {
			return true
		}
		time.Sleep(time.Millisecond)
	}
	return f()
}
