//go:build unix

package observe

import (
	"errors"
	"io/fs"
	"os"
	"syscall"
)

// owned reports whether this user owns a file.
func owned(info fs.FileInfo) bool {
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(st.Uid) == os.Getuid()
}

// alive reports whether a process of this number exists.
func alive(pid int) bool {
	return !errors.Is(syscall.Kill(pid, 0), syscall.ESRCH)
}
