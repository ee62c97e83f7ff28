package lab

import (
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// patience is how long somebody else may take to take a lab down.
const patience = 30 * time.Second

// Down takes a lab away, whoever made it and whatever became of them: one that is up,
// one that is running, and what is left of one that was killed. It tells whether
// there was any.
func Down(name string) (found bool, err error) {
	if err := able(); err != nil {
		return false, err
	}
	l, err := takeOver(name)
	if err != nil {
		return false, err
	}
	found, err = wipe(name)
	return found, errors.Join(err, unlock(l))
}

// takeOver gets the lock, from who has it if need be.
func takeOver(name string) (*os.File, error) {
	for limit := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		l, err := lock(name)
		if err == nil || !errors.Is(err, errLocked) {
			return l, err
		}
		if time.Now().After(limit) {
			return nil, fmt.Errorf("%w, and its owner does not let go of it (%s)", err, lockPath(name))
		}
		s, err := readState(name)
		switch {
		case err != nil: // it is just coming or going
		case s.Owner.alive():
			// It takes the lab down by itself.
			if err := s.Owner.end(unix.SIGTERM, patience); err != nil {
				return nil, err
			}
		default:
			if err := s.Holder.end(unix.SIGKILL, patience); err != nil {
				return nil, err
			}
		}
	}
}

// wipe removes everything of a lab but the lock, which the caller has. It finds
// namespaces by name, because the state may be lost.
func wipe(name string) (found bool, err error) {
	s, err := readState(name)
	if err != nil {
		s = &state{} // none, or half written: what counts is found without
	} else {
		found = true
	}
	errs := []error{s.Holder.end(unix.SIGKILL, patience)}
	names, err := listNamespaces(Config{Name: name}.prefix())
	errs = append(errs, err, evict(names))
	for _, n := range names {
		found = true
		errs = append(errs, removeNamespace(n))
	}
	if s.Logs != "" {
		errs = append(errs, os.RemoveAll(s.Logs))
	}
	// Not if somebody else has one, or if iproute2 has made it a mount of its own.
	_ = os.Remove(namespaces)
	// The state goes last: while it is there, this can be done again.
	if err := errors.Join(errs...); err != nil {
		return found, err
	}
	return found, removeFiles(name)
}
