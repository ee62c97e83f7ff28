//go:build !linux

package e2e

import (
	"os/exec"
	"syscall"
)

// dieWithParent has no equivalent here: processes end when their pipes to the test break.
func dieWithParent() *syscall.SysProcAttr { return nil }

func startOnLastingThread(cmd *exec.Cmd) error { return cmd.Start() }
