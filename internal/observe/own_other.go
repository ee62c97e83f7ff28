//go:build !unix

package observe

import "io/fs"

// owned returns false: this system does not tell the owner of a file, so no socket is opened.
func owned(fs.FileInfo) bool { return false }

func alive(int) bool { return true }
