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

// namespaces is the directory in which iproute2 mounts network namespaces on files. Labs use it
// too, so "ip netns exec" works.
const namespaces = "/run/netns"

func namespacePath(name string) string { return filepath.Join(namespaces, name) }

// newNamespace creates a namespace and runs f in it.
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

// newFile creates an empty file and its directory, which another lab may remove at any time.
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
	ns, err := netns.GetFromPath(namespacePath(name))
	if err != nil {
		return fmt.Errorf("namespace %s: %w", name, err)
	}
	defer func() { _ = ns.Close() }()
	return annotate(netns.Set(ns), "namespace %s: setns", name)
}

// onThread runs f on its own thread and then returns the thread to its old namespace. That is
// necessary even for a thread that ends: the process's first thread never ends, and /proc would
// show the whole process in the lab.
func onThread(f func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		err := visit(f)
		if !errors.Is(err, errLost) {
			runtime.UnlockOSThread()
		}
		done <- err
	}()
	return <-done
}

// errLost reports that a thread is still in another namespace.
var errLost = errors.New("back to our own namespace")

// visit runs f on this thread, which must be locked, and then returns the thread to its old namespace.
func visit(f func() error) error {
	home, err := netns.Get()
	if err != nil {
		return fmt.Errorf("our own namespace: %w", err)
	}
	defer func() { _ = home.Close() }()
	err = f()
	if back := netns.Set(home); back != nil {
		err = errors.Join(err, fmt.Errorf("%w: %w", errLost, back))
	}
	return err
}

// listNamespaces returns the names of a lab's existing namespaces.
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

// removeNamespace removes the name. The namespace, its interfaces and the other ends of their
// cables disappear when no process uses it any more.
func removeNamespace(name string) error {
	path := namespacePath(name)
	// EINVAL: its creator was killed before it was mounted.
	err := unix.Unmount(path, unix.MNT_DETACH)
	if err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("namespace %s: unmount: %w", name, err)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("namespace %s: %w", name, err)
	}
	return nil
}
