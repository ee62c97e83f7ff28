package napi

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// share is one user's part in the settings of an interface. A process may have several.
type share struct {
	registry string // path
	name     string // name of the file in the registry
	dev      *device
	file     *os.File // holds the shared lock
	saved    settings
}

// join becomes a user of an interface, and calls start while no other user can join or leave.
func join(registry string, dev *device, start func() error) (*share, error) {
	r, err := openRegistry(registry, lockLimit)
	if err != nil {
		return nil, err
	}
	defer r.close()
	s := &share{registry: registry, name: fmt.Sprintf("napi-%d-%d.json", dev.inode, dev.index), dev: dev}
	if err := s.enter(r); err != nil {
		return nil, err
	}
	if err = dev.apply(s.saved); err == nil {
		err = start()
	}
	if err != nil {
		return nil, errors.Join(err, s.exit(r))
	}
	return s, nil
}

// enter locks the interface's file, and makes one if there is none. A file without users belongs to
// processes that were killed: then too, the file has the original settings, and the interface may not.
func (s *share) enter(r *registry) error {
	f, rec, err := r.find(s.name)
	if err != nil {
		return err
	}
	if f != nil && rec != nil && rec.identity == s.dev.id {
		if err := flock(f, unix.LOCK_SH); err != nil {
			_ = f.Close()
			return fmt.Errorf("lock %s: %w", f.Name(), err)
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
	s.file, err = r.create(s.name, &record{identity: s.dev.id, Interface: name, Saved: s.saved})
	return err
}

// leave ends the share. The last user restores the interface.
func (s *share) leave() error {
	defer s.dev.close()
	r, err := openRegistry(s.registry, lockLimit)
	if err != nil {
		unlock(s.file)
		return s.notRestored(err)
	}
	defer r.close()
	return s.exit(r)
}

func (s *share) exit(r *registry) error {
	defer unlock(s.file)
	err := flock(s.file, unix.LOCK_EX)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return nil // other users remain
	}
	if err != nil {
		return s.notRestored(fmt.Errorf("lock %s: %w", s.file.Name(), err))
	}
	replaced, err := r.replaced(s.name, s.file)
	if replaced {
		return nil // by users of a later interface with the same index: the original one is gone
	}
	if err == nil {
		err = s.dev.restore(s.saved)
	}
	if err != nil {
		return s.notRestored(err)
	}
	return r.remove(s.name)
}

func (s *share) notRestored(err error) error {
	return fmt.Errorf("%w; %s keeps the original settings, and the next process to leave the interface restores them",
		err, s.file.Name())
}
