//go:build !linux

package transfer

import (
	"io/fs"
	"os"
	"runtime"
	"time"
)

// noFollow has no effect here; the receiver checks for links before it opens a file.
const noFollow = 0

// dataExtents treats all of a file as data.
func dataExtents(string, fs.FileInfo) ([]extent, error) { return nil, nil }

func extentsOf(*os.File, int64) ([]extent, error) { return nil, nil }

// syncAll does nothing: without syncfs, each file is flushed before its rename (syncEach).
func syncAll(*os.File) error { return nil }

// syncDir flushes a directory, where the system can.
func syncDir(f *os.File) error {
	if runtime.GOOS == "windows" {
		return nil
	}
	return f.Sync()
}

func forget(*os.File) {}

func lockFile(*os.File) error { return nil }

// syncEach reports that files must be flushed one by one.
const syncEach = true

func linkTime(*os.File, string, time.Time) {}
