package napi

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

const (
	stateDir  = "/run/allcast"
	lockLimit = 10 * time.Second // a process holds the lock for milliseconds
	lockPause = 2 * time.Millisecond
)

// registry is the directory with one file per interface in use, open and locked.
type registry struct {
	path string
	dir  *os.File
}

// record is the contents of a file in the registry: which interface, and its original settings.
type record struct {
	identity
	Interface string // name, for users
	Saved     settings
}

// openRegistry opens the directory and locks it. It fails if another process holds the lock for
// longer than limit: a stopped process must not make others hang in Join and Close.
func openRegistry(path string, limit time.Duration) (*registry, error) {
	if err := os.Mkdir(path, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return nil, fmt.Errorf("the directory for saved settings: %w; its parent must be writable for root", err)
	}
	dir, err := os.OpenFile(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, fmt.Errorf("the directory for saved settings: %w; it must be a directory of root's", err)
	}
	if err := private(dir, path); err != nil {
		_ = dir.Close()
		return nil, err
	}
	for deadline := time.Now().Add(limit); ; time.Sleep(lockPause) {
		err := flock(dir, unix.LOCK_EX)
		if err == nil {
			return &registry{path: path, dir: dir}, nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) {
			_ = dir.Close()
			return nil, fmt.Errorf("lock %s: %w", path, err)
		}
		if !time.Now().Before(deadline) {
			_ = dir.Close()
			return nil, fmt.Errorf("lock %s: another process has held it for %v; is it stopped? lslocks finds it",
				path, limit)
		}
	}
}

func (r *registry) close() { unlock(r.dir) }

// find opens the file of a name. The file is nil if it does not exist. The record is nil if the file
// does not hold one.
func (r *registry) find(name string) (*os.File, *record, error) {
	path := filepath.Join(r.path, name)
	fd, err := unix.Openat(int(r.dir.Fd()), name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENOENT) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, fmt.Errorf("saved settings: open %s: %w; remove what is there", path, err)
	}
	f := os.NewFile(uintptr(fd), path)
	text, err := []byte(nil), private(f, path)
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

// create creates the file of a name with a shared lock on it. It replaces an older file.
func (r *registry) create(name string, rec *record) (f *os.File, err error) {
	dir, temporary := int(r.dir.Fd()), name+".new"
	defer func() {
		if err != nil {
			err = fmt.Errorf("save settings in %s: %w", filepath.Join(r.path, name), err)
		}
	}()
	text, err := json.Marshal(rec)
	if err != nil {
		return nil, err
	}
	// A process that was killed may have left one.
	if err := unix.Unlinkat(dir, temporary, 0); err != nil && !errors.Is(err, unix.ENOENT) {
		return nil, err
	}
	fd, err := unix.Openat(dir, temporary, unix.O_RDWR|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, err
	}
	f = os.NewFile(uintptr(fd), filepath.Join(r.path, name))
	if _, err = f.Write(append(text, '\n')); err == nil {
		err = flock(f, unix.LOCK_SH)
	}
	if err == nil {
		err = unix.Renameat(dir, temporary, dir, name)
	}
	if err != nil {
		_ = unix.Unlinkat(dir, temporary, 0)
		unlock(f)
		return nil, err
	}
	return f, nil
}

// replaced reports whether a name now belongs to another file than f.
func (r *registry) replaced(name string, f *os.File) (bool, error) {
	mine, err := f.Stat()
	if err != nil {
		return false, err
	}
	named, err := os.Lstat(filepath.Join(r.path, name))
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	return err == nil && !os.SameFile(mine, named), err
}

func (r *registry) remove(name string) error {
	if err := unix.Unlinkat(int(r.dir.Fd()), name, 0); err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("remove %s: %w", filepath.Join(r.path, name), err)
	}
	return nil
}

// private checks that no other user can have created or locked a file or directory.
func private(f *os.File, path string) error {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if kind := st.Mode & unix.S_IFMT; kind != unix.S_IFREG && kind != unix.S_IFDIR {
		return fmt.Errorf("%s is not a regular file: remove it", path)
	}
	if uid := os.Geteuid(); int(st.Uid) != uid || st.Mode&0o077 != 0 {
		return fmt.Errorf("%s belongs to user %d with mode %#o, so others may have changed it: "+
			"it must belong to user %d and be closed to others; remove it", path, st.Uid, st.Mode&0o7777, uid)
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
