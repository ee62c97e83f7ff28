package lab

import (
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// patience is the time that another process may take to end, or to remove a lab.
const patience = 30 * time.Second

// Down removes a lab, whichever process built it: a lab that is up, a lab that runs a job, or
// the rest of a lab whose owner was killed. It reports whether there was one.
func Down(name string) (found bool, err error) {
	if err := checkPrivileges(); err != nil {
		return false, err
	}
	l, err := takeOver(name)
	if err != nil {
		return false, err
	}
	found, err = wipe(name)
	return found, errors.Join(err, unlock(l))
}

// takeOver acquires the lock, and ends its holder if necessary.
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
		case err != nil: // the lab is being built or removed
		case s.Owner.alive():
			// The owner removes the lab itself.
			if err := s.Owner.end(unix.SIGTERM); err != nil {
				return nil, err
			}
		default:
			if err := s.Holder.end(unix.SIGKILL); err != nil {
				return nil, err
			}
		}
	}
}

// wipe removes all parts of a lab but the lock, which the caller holds. It finds namespaces by
// name, because the state may be lost.
func wipe(name string) (found bool, err error) {
	s, err := readState(name)
	if err != nil {
		s = &state{} // missing or incomplete: the namespaces are found without it
	} else {
		found = true
	}
	errs := []error{s.Holder.end(unix.SIGKILL)}
	names, err := listNamespaces(Config{Name: name}.prefix())
	errs = append(errs, err, killProcesses(names))
	for _, n := range names {
		found = true
		errs = append(errs, removeNamespace(n))
	}
	if s.Logs != "" {
		errs = append(errs, os.RemoveAll(s.Logs))
	}
	// This fails if the directory has other namespaces, or if iproute2 has made it a mount point.
	_ = os.Remove(namespaces)
	// The state is removed last, so that an interrupted Down can be repeated.
	if err := errors.Join(errs...); err != nil {
		return found, err
	}
	return found, removeFiles(name)
}
