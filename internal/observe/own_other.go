//go:build !unix

package observe

import "io/fs"

// owned is never so: who owns a file is not known here, so there is no socket.
func owned(fs.FileInfo) bool { return false }

func alive(int) bool { return true }
