package lab

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// namespaces is where iproute2 keeps names of network namespaces: files that the
// namespaces are mounted on. Ours are there too, so "ip netns exec" works.
const namespaces = "/run/netns"

func namespacePath(name string) string { return filepath.Join(namespaces, name) }

// newNamespace makes a namespace and runs f in it.
func newNamespace(name string, f func() error) error {
	return onThread(func() error {
		path := namespacePath(name)
		if err := newFile(path); err != nil {
			return fmt.Errorf("namespace %s: %w", name, err)
		}
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("namespace %s: unshare: %w", name, err)
		}
		if err := unix.Mount("/proc/thread-self/ns/net", path, "none", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("namespace %s: mount: %w", name, err)
		}
		return f()
	})
}

// newFile makes an empty file, and its directory: a lab that goes down may remove that
// at any time.
func newFile(path string) error {
	for {
		file, err := os.OpenFile(path, os.O_RDONLY|os.O_CREATE|os.O_EXCL, 0o444)
		if err == nil {
			return file.Close()
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
	}
}

// inNamespace runs f on a thread inside a namespace.
func inNamespace(name string, f func() error) error {
	return onThread(func() error {
		if err := enterNamespace(name); err != nil {
			return err
		}
		return f()
	})
}

// enterNamespace moves this thread, which must be locked, into a namespace.
func enterNamespace(name string) error {
	fd, err := unix.Open(namespacePath(name), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("namespace %s: %w", name, err)
	}
	defer func() { _ = unix.Close(fd) }()
	if err := unix.Setns(fd, unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("namespace %s: setns: %w", name, err)
	}
	return nil
}

// onThread runs f on a thread of its own and brings that back to the namespace it
// came from. It must come back even if it is to end: the process's first thread
// never does, and would say that the whole process is in the lab.
func onThread(f func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		home, err := netns.Get()
		if err != nil {
			runtime.UnlockOSThread()
			done <- fmt.Errorf("our own namespace: %w", err)
			return
		}
		defer func() { _ = home.Close() }()
		err = f()
		if back := netns.Set(home); back == nil {
			runtime.UnlockOSThread()
		} else {
			err = errors.Join(err, fmt.Errorf("back to our own namespace: %w", back))
		}
		done <- err
	}()
	return <-done
}

// listNamespaces returns the names of the namespaces that there are of a lab.
func listNamespaces(prefix string) ([]string, error) {
	entries, err := os.ReadDir(namespaces)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), prefix) {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

// removeNamespace takes the name away. The namespace, its interfaces and the other
// ends of their cables go when nobody uses it any more.
func removeNamespace(name string) error {
	path := namespacePath(name)
	// EINVAL: whoever made it was killed before it was mounted.
	if err := unix.Unmount(path, unix.MNT_DETACH); err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("namespace %s: unmount: %w", name, err)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("namespace %s: %w", name, err)
	}
	return nil
}
