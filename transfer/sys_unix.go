//go:build unix

package transfer

import (
	"io/fs"
	"os"
	"syscall"
)

// inode identifies a file.
type inode struct{ dev, ino uint64 }

// private reports whether a directory belongs to this user, and no other user can write to it.
func private(info fs.FileInfo) bool {
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(st.Uid) == os.Geteuid() && info.Mode().Perm()&0o022 == 0
}

// inodeOf returns the identity of a file, and whether it has several names.
func inodeOf(info fs.FileInfo) (id inode, linked bool) {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return inode{}, false
	}
	return inode{uint64(st.Dev), uint64(st.Ino)}, st.Nlink > 1 //nolint:unconvert // the types differ between systems
}
