package lab

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// errLocked says that somebody has a lab of that name.
var errLocked = errors.New("there is a lab already")

// lock makes us the only one with a lab of that name, as long as the file is open,
// here or in a process that inherited it.
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
		// Who had it before us removes the file: it may not be the one with the name any more.
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
