//go:build linux

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// guest is /init: it prepares the machine, runs the tests, reports the verdict and powers off.
func guest() {
	err := prepare()
	if err == nil {
		err = tests()
	}
	verdict := byte(passed)
	if err != nil {
		say("guest: %v", err)
		verdict = failed
	}
	if f, err := os.OpenFile("/dev/port", os.O_WRONLY, 0); err == nil {
		_, _ = f.WriteAt([]byte{verdict}, debugPort) // the machine ends here
	}
	_ = unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF)
}

func prepare() error {
	for _, m := range []struct{ kind, on string }{
		{"devtmpfs", "/dev"}, {"proc", "/proc"}, {"sysfs", "/sys"}, {"tmpfs", "/tmp"},
	} {
		if err := unix.Mount(m.kind, m.on, m.kind, 0, ""); err != nil {
			return &os.PathError{Op: "mount", Path: m.on, Err: err}
		}
	}
	order, err := os.ReadFile("/modules/order")
	if err != nil {
		return err
	}
	for name := range strings.FieldsSeq(string(order)) {
		if err := insert(filepath.Join("/modules", name)); err != nil {
			return err
		}
	}
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return err
	}
	return netlink.LinkSetUp(lo)
}

// insert loads a module.
func insert(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	if err := unix.FinitModule(int(f.Fd()), "", 0); err != nil {
		return &os.PathError{Op: "load", Path: path, Err: err}
	}
	return nil
}

func tests() error {
	args, err := os.ReadFile("/etc/args")
	if err != nil {
		return err
	}
	c := exec.Command("/verbs.test", strings.Split(string(args), "\n")...)
	c.Stdout, c.Stderr, c.Dir = os.Stdout, os.Stdout, "/tmp"
	c.Env = []string{"ALLCAST_VERBS_GUEST=1", "ALLCAST_COMMAND=/allcast", "HOME=/tmp", "TMPDIR=/tmp", "PATH=/"}
	return c.Run()
}
