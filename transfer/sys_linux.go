package transfer

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// noFollow makes open fail on a symbolic link.
const noFollow = unix.O_NOFOLLOW

// dataExtents returns the parts of a file that are not holes, or nil if it has none.
func dataExtents(name string, info fs.FileInfo) ([]extent, error) {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok || st.Blocks*512 >= info.Size() {
		return nil, nil
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	return extentsOf(f, info.Size())
}

func extentsOf(f *os.File, size int64) ([]extent, error) {
	all := []extent{}
	for at := int64(0); at < size; {
		start, err := unix.Seek(int(f.Fd()), at, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) {
			break // only a hole is left
		}
		if err != nil {
			return nil, nil //nolint:nilerr // the file system cannot tell: all of the file is data
		}
		end, err := unix.Seek(int(f.Fd()), start, unix.SEEK_HOLE)
		if err != nil {
			return nil, fmt.Errorf("%s: cannot find the holes: %w", f.Name(), err)
		}
		if end = min(end, size); start < end {
			all = append(all, extent{start, end - start})
		}
		at = end
	}
	if len(all) == 1 && all[0] == (extent{0, size}) {
		return nil, nil
	}
	return all, nil
}

// syncAll flushes the file system of a file.
func syncAll(f *os.File) error { return unix.Syncfs(int(f.Fd())) }

// syncDir flushes a directory.
func syncDir(f *os.File) error { return f.Sync() }

// forget drops the pages of a file from the cache, so that reading it again reads the disk.
func forget(f *os.File) { _ = unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED) }

// lockFile makes this process the only one that uses the file.
func lockFile(f *os.File) error { return unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) }

// syncEach reports that files must be flushed one by one.
const syncEach = false

// linkTime sets the time of a symbolic link, as far as the file system can.
func linkTime(dir *os.File, name string, when time.Time) {
	at := unix.NsecToTimespec(when.UnixNano())
	_ = unix.UtimesNanoAt(int(dir.Fd()), name, []unix.Timespec{at, at}, unix.AT_SYMLINK_NOFOLLOW)
}
