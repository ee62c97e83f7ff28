//go:build linux && cgo

package tests

import (
	"syscall"
	"testing"
)

func TestOperations(t *testing.T) { job{ranks: 3}.start(t, "operations") }

func TestArguments(t *testing.T) { job{ranks: 1}.start(t, "arguments") }

func TestQueue(t *testing.T) { job{ranks: 2}.start(t, "queue") }

func TestStore(t *testing.T) { job{ranks: 4, args: []string{t.TempDir()}}.start(t, "store") }

func TestThreads(t *testing.T) { job{ranks: 3}.start(t, "threads") }

func TestFailures(t *testing.T) {
	for _, name := range []string{
		"mismatch", "aborted", "deadline", "withdrawn", "cancelled", "closed", "absent", "no multicast",
	} {
		t.Run(name, func(t *testing.T) { job{ranks: 3, args: []string{name}}.start(t, "failure") })
	}
	t.Run("killed", func(t *testing.T) {
		job{ranks: 3, args: []string{"killed"}, dies: syscall.SIGKILL, died: 1}.start(t, "failure")
	})
}

func TestCycles(t *testing.T) { job{ranks: 2}.start(t, "cycles") }
