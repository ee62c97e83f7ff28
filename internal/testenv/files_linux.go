package testenv

import (
	"sync"
	"syscall"
	"testing"
)

// NoMoreFiles lets this process open no file and accept no connection until restore is called, or the test ends. Any
// goroutine that closes a file makes room for another one, so that the test runs in soak only.
func NoMoreFiles(t testing.TB) (restore func()) {
	t.Helper()
	Soak(t, "a file that something else closes lets a connection through")
	var old syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &old); err != nil {
		t.Fatal(err)
	}
	// The limit is the lowest free descriptor: below it, poll(2) fails for the descriptors that are open.
	free, err := syscall.Open("/dev/null", syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	_ = syscall.Close(free)
	now := syscall.Rlimit{Cur: uint64(free), Max: old.Max}
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &now); err != nil {
		t.Fatal(err)
	}
	restore = sync.OnceFunc(func() {
		if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &old); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(restore)
	return restore
}
