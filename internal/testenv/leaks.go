package testenv

import (
	"fmt"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// Main runs the tests of a package and ends the process. It fails if the tests leave a goroutine behind.
func Main(m *testing.M, ignore ...goleak.Option) {
	status := m.Run()
	if status == 0 {
		if err := leaked(Patience, ignore...); err != nil {
			_, _ = fmt.Fprintln(os.Stderr, "the tests passed, but:", err)
			status = 1
		}
	}
	os.Exit(status)
}

// NoLeaks fails a test if there are goroutines that do not end.
func NoLeaks(t testing.TB) {
	t.Helper()
	if err := leaked(Patience); err != nil {
		t.Error(err)
	}
}

// leaked waits for goroutines to end. It returns an error with their stacks if some have not ended in time. goleak
// alone gives them less than half a second, which is not enough on a busy machine.
func leaked(within time.Duration, ignore ...goleak.Option) error {
	for end := time.Now().Add(within); ; {
		if err := goleak.Find(ignore...); err == nil || time.Now().After(end) {
			return err
		}
	}
}
