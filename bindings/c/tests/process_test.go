//go:build linux && cgo

package tests

import (
	"syscall"
	"testing"
)

func TestFork(t *testing.T) {
	env := []string{"ALLCAST_TIMEOUT=1h"}
	t.Run("child", func(t *testing.T) { job{ranks: 3, args: []string{"child"}, env: env}.start(t, "fork") })
	t.Run("killed parent", func(t *testing.T) {
		job{ranks: 3, args: []string{"die"}, env: env, dies: syscall.SIGKILL, died: 1}.start(t, "fork")
	})
}
