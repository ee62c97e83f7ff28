package napi

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// share is one user's part in the settings of an interface. A process may have several.
type share struct {
	path  string // of the file in the registry
	dev   *device
	file  *os.File // holds the shared lock
	saved settings
}

// join becomes a user of an interface, and calls start while no other user can join or leave.
func join(registry string, dev *device, start func() error) (*share, error) {
	dir, err := openRegistry(registry, lockLimit)
	if err != nil {
		return nil, err
	}
	defer unlock(dir)
	s := &share{path: filepath.Join(registry, fmt.Sprintf("napi-%d-%d.json", dev.inode, dev.index)), dev: dev}
	if err := s.enter(); err != nil {
		return nil, err
	}
	if err = dev.apply(s.saved); err == nil {
		err = start()
	}
	if err != nil {
		return nil, errors.Join(err, s.exit())
	}
	return s, nil
}

// enter locks the interface's file, and makes one if there is none. A file without users belongs to
// processes that were killed: then too, the file has the original settings, and the interface may not.
func (s *share) enter() error {
	f, rec, err := findRecord(s.path)
	if err != nil {
		return err
	}
	if f != nil && rec != nil && rec.identity == s.dev.id {
		if err := flock(f, unix.LOCK_SH); err != nil {
			_ = f.Close()
			return fmt.Errorf("lock %s: %w", s.path, err)
		}
		s.file, s.saved = f, rec.Saved
		return nil
	}
	if f != nil {
		_ = f.Close()
	}
	if s.saved, err = s.dev.settings(); err != nil {
		return err
	}
	name, err := s.dev.name()
	if err != nil {
		return err
	}
	s.file, err = createRecord(s.path, &record{identity: s.dev.id, Interface: name, Saved: s.saved})
	return err
}

// leave ends the share. The last user restores the interface.
func (s *share) leave() error {
	defer s.dev.close()
	dir, err := openRegistry(filepath.Dir(s.path), lockLimit)
	if err != nil {
		unlock(s.file)
		return s.notRestored(err)
	}
	defer unlock(dir)
	return s.exit()
}

func (s *share) exit() error {
	defer unlock(s.file)
	err := flock(s.file, unix.LOCK_EX)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return nil // other users remain
	}
	if err != nil {
		return s.notRestored(fmt.Errorf("lock %s: %w", s.path, err))
	}
	other, err := replaced(s.path, s.file)
	if other {
		return nil // by users of a later interface with the same index: the original one is gone
	}
	if err == nil {
		err = s.dev.restore(s.saved)
	}
	if err != nil {
		return s.notRestored(err)
	}
	if err := os.Remove(s.path); !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

func (s *share) notRestored(err error) error {
	return fmt.Errorf("%w; %s keeps the original settings, and the next process to leave the interface restores them",
		err, s.path)
}
