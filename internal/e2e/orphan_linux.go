package e2e

import (
	"os/exec"
	"runtime"
	"sync"
	"syscall"
)

// dieWithParent makes the kernel kill a process when the thread that started it ends. This also ends
// ranks that are stopped when a test times out or is killed.
func dieWithParent() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }

// starter returns the work queue of a thread that lives as long as this process.
var starter = sync.OnceValue(func() chan<- func() {
	work := make(chan func())
	go func() {
		runtime.LockOSThread()
		for f := range work {
			f()
		}
	}()
	return work
})

// startOnLastingThread starts a process on that thread, because dieWithParent watches the thread.
func startOnLastingThread(cmd *exec.Cmd) error {
	done := make(chan error)
	starter() <- func() { done <- cmd.Start() }
	return <-done
}
