//go:build linux

package main

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"
)

// rsh stands in for ssh with the arguments LAB HOSTS [OPTIONS] HOST COMMAND... It executes the
// command on a host of the lab. Besides its network, the host has its own name, names of the other
// hosts, and its own view of the interfaces. MPI's launchers therefore take it for a machine of its
// own, and its ranks share no memory with others. rsh returns only if it fails.
func rsh(args []string) error {
	if len(args) < 2 {
		return errors.New("rsh: too few arguments: want LAB HOSTS [OPTIONS] HOST COMMAND")
	}
	name, hosts, args := args[0], args[1], args[2:]
	for len(args) > 0 && strings.HasPrefix(args[0], "-") {
		args = args[1:]
	}
	if len(args) < 2 {
		return errors.New("rsh: no command")
	}
	// Namespaces belong to a thread, and exec keeps those of the thread that calls it.
	runtime.LockOSThread()
	if err := enter(name+"-"+args[0], args[0], hosts); err != nil {
		return fmt.Errorf("rsh: %s: %w", args[0], err)
	}
	return unix.Exec("/bin/sh", []string{"sh", "-c", strings.Join(args[1:], " ")}, os.Environ())
}

// enter moves this thread into the namespaces of a host.
func enter(namespace, host, hosts string) error {
	fd, err := unix.Open("/run/netns/"+namespace, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	if err := unix.Setns(fd, unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("setns: %w", err)
	}
	if err := unix.Unshare(unix.CLONE_NEWUTS | unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("unshare: %w", err)
	}
	if err := unix.Sethostname([]byte(host)); err != nil {
		return fmt.Errorf("sethostname: %w", err)
	}
	// Keep the following mounts private to this namespace.
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("mount /: %w", err)
	}
	if err := unix.Mount(hosts, "/etc/hosts", "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("mount /etc/hosts: %w", err)
	}
	if err := unix.Mount("sysfs", "/sys", "sysfs", 0, ""); err != nil {
		return fmt.Errorf("mount /sys: %w", err)
	}
	return nil
}
