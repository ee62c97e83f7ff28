package napi

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

const (
	stateDir  = "/run/allcast"
	lockLimit = 10 * time.Second // a process holds the lock for milliseconds
	lockPause = 2 * time.Millisecond
)

// record is the contents of a file in the registry: which interface, and its original settings.
type record struct {
	identity
	Interface string // name, for users
	Saved     settings
}

// openRegistry opens the registry, the directory with one file per interface in use, and locks it. It
// fails if another process holds the lock for longer than limit: a stopped process must not make others
// hang in Join and Close.
func openRegistry(path string, limit time.Duration) (_ *os.File, err error) {
	if err := os.Mkdir(path, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return nil, fmt.Errorf("the directory for saved settings: %w; its parent must be writable for root", err)
	}
	dir, err := os.OpenFile(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, fmt.Errorf("the directory for saved settings: %w; it must be a directory of root's", err)
	}
	defer func() {
		if err != nil {
			_ = dir.Close()
		}
	}()
	if err := private(dir); err != nil {
		return nil, err
	}
	for deadline := time.Now().Add(limit); ; time.Sleep(lockPause) {
		err := flock(dir, unix.LOCK_EX)
		switch {
		case err == nil:
			return dir, nil
		case !errors.Is(err, unix.EWOULDBLOCK):
			return nil, fmt.Errorf("lock %s: %w", path, err)
		case !time.Now().Before(deadline):
			return nil, fmt.Errorf("lock %s: another process has held it for %v; is it stopped? lslocks finds it",
				path, limit)
		}
	}
}

// findRecord opens a file of the registry. The file is nil if it does not exist. The record is nil if the
// file does not hold one.
func findRecord(path string) (*os.File, *record, error) {
	f, err := os.OpenFile(path, unix.O_RDONLY|unix.O_NOFOLLOW, 0)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, fmt.Errorf("saved settings: %w; remove what is there", err)
	}
	text, err := []byte(nil), private(f)
	if err == nil {
		text, err = io.ReadAll(f)
	}
	if err != nil {
		_ = f.Close()
		return nil, nil, fmt.Errorf("saved settings: %w", err)
	}
	rec := new(record)
	if json.Unmarshal(text, rec) != nil {
		rec = nil // damaged when the machine crashed: in this boot, files appear complete
	}
	return f, rec, nil
}

// createRecord creates a file of the registry with a shared lock on it. It replaces an older file.
func createRecord(path string, rec *record) (f *os.File, err error) {
	temporary := path + ".new"
	text, err := json.Marshal(rec)
	if err == nil {
		// A process that was killed may have left one.
		if err = os.Remove(temporary); errors.Is(err, os.ErrNotExist) {
			err = nil
		}
	}
	if err == nil {
		f, err = os.OpenFile(temporary, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	}
	if err != nil {
		return nil, fmt.Errorf("save settings: %w", err)
	}
	if _, err = f.Write(append(text, '\n')); err == nil {
		err = flock(f, unix.LOCK_SH)
	}
	if err == nil {
		err = os.Rename(temporary, path)
	}
	if err != nil {
		_ = os.Remove(temporary)
		unlock(f)
		return nil, fmt.Errorf("save settings in %s: %w", path, err)
	}
	return f, nil
}

// replaced reports whether a path now names another file than f.
func replaced(path string, f *os.File) (bool, error) {
	mine, err := f.Stat()
	if err != nil {
		return false, err
	}
	named, err := os.Lstat(path)
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	return err == nil && !os.SameFile(mine, named), err
}

// private checks that no other user can have created or locked a file or directory.
func private(f *os.File) error {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return fmt.Errorf("%s: %w", f.Name(), err)
	}
	if kind := st.Mode & unix.S_IFMT; kind != unix.S_IFREG && kind != unix.S_IFDIR {
		return fmt.Errorf("%s is not a regular file: remove it", f.Name())
	}
	if uid := os.Geteuid(); int(st.Uid) != uid || st.Mode&0o077 != 0 {
		return fmt.Errorf("%s belongs to user %d with mode %#o, so others may have changed it: "+
			"it must belong to user %d and be closed to others; remove it", f.Name(), st.Uid, st.Mode&0o7777, uid)
	}
	return nil
}

// flock takes a lock or fails with EWOULDBLOCK. The kernel drops the lock when the process dies.
func flock(f *os.File, how int) error {
	for {
		if err := unix.Flock(int(f.Fd()), how|unix.LOCK_NB); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// unlock drops the lock and closes the file. Closing alone would leave the lock with a child that has
// not called exec yet.
func unlock(f *os.File) {
	_ = unix.Flock(int(f.Fd()), unix.LOCK_UN)
	_ = f.Close()
}
