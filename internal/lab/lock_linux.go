package lab

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// errLocked reports that another process has a lab of that name.
var errLocked = errors.New("there is a lab already")

// lock locks the name of a lab. The lock lasts as long as the file is open, in this process or in
// one that inherited it.
func lock(name string) (*os.File, error) {
	for {
		f, err := os.OpenFile(lockPath(name), os.O_RDWR|os.O_CREATE, 0o644)
		if err != nil {
			return nil, err
		}
		if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
			_ = f.Close()
			if errors.Is(err, unix.EWOULDBLOCK) {
				return nil, errLocked
			}
			return nil, fmt.Errorf("%s: %w", lockPath(name), err)
		}
		// The previous owner removes the file, so the name may belong to another file by now.
		mine, err := f.Stat()
		if named, statErr := os.Stat(lockPath(name)); err == nil && statErr == nil && os.SameFile(mine, named) {
			return f, nil
		}
		_ = f.Close()
	}
}

// unlock removes the lock and its file.
func unlock(f *os.File) error {
	return errors.Join(os.Remove(f.Name()), f.Close())
}
