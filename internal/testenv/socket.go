package testenv

import (
	"os"
	"testing"
)

// SocketDir keeps the sockets of a test apart from those of other jobs, and returns where
// they are. The name of t.TempDir may be too long for a socket.
func SocketDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "allcast") //nolint:usetesting // a shorter name
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	t.Setenv("XDG_RUNTIME_DIR", dir)
	t.Setenv("TMPDIR", dir)
	return dir
}
