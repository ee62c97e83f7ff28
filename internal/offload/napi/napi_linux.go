package napi

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Of linux/netdev.h.
const (
	cmdNAPIGet  = 11
	attrIfindex = 1
	attrID      = 2
	attrPID     = 4
)

// Dedicate binds the threads that take packets from an interface to processors, one after
// the other. It needs CAP_NET_ADMIN and CAP_SYS_ADMIN. Undo leaves the interface as it was; if
// the process dies before, the interface stays as it is, which does no harm.
func Dedicate(ifi *net.Interface, cpus []int) (undo func(), err error) {
	if ifi.Flags&net.FlagLoopback != 0 {
		return nil, fmt.Errorf("receive cores: %s has none: what is sent by it is received by who sends", ifi.Name)
	}
	sys, err := openSysfs()
	if err != nil {
		return nil, fmt.Errorf("receive cores of %s: %w; it needs CAP_SYS_ADMIN and CAP_NET_ADMIN: run as root", ifi.Name, err)
	}
	defer func() { _ = unix.Close(sys) }()
	path := "class/net/" + ifi.Name + "/threaded"
	was, err := read(sys, path)
	if err != nil {
		return nil, fmt.Errorf("receive cores of %s: %w; threaded interfaces need Linux 5.12", ifi.Name, err)
	}
	keep, err := unix.Dup(sys)
	if err != nil {
		return nil, fmt.Errorf("receive cores of %s: %w", ifi.Name, err)
	}
	undone := []func(){func() {
		_ = write(keep, path, was) // the interface may be gone
		_ = unix.Close(keep)
	}}
	undo = func() {
		for _, f := range undone {
			f()
		}
	}
	// A veth gives packets to its threads only if it would gather them, datagrams too; and only
	// those that came from a socket right at its other end, or if that end cuts TCP's
	// super-packets, as the lab's do when asked.
	for _, what := range []string{"rx-gro", "rx-udp-gro-forwarding"} {
		if f, err := Feature(ifi.Name, what, true); err == nil {
			undone = append(undone, f)
		}
	}
	if err := write(sys, path, "1"); err != nil {
		undo()
		return nil, fmt.Errorf("receive cores of %s: %w; its driver may have no threads", ifi.Name, err)
	}
	pids, err := Threads(ifi)
	if err == nil && len(pids) == 0 {
		err = errors.New("the kernel has made no threads for it")
	}
	for i, pid := range pids {
		var set unix.CPUSet
		set.Set(cpus[i%len(cpus)])
		if err == nil {
			err = isThread(pid)
		}
		if err == nil {
			err = unix.SchedSetaffinity(pid, &set)
		}
	}
	if err != nil {
		undo()
		return nil, fmt.Errorf("receive cores of %s, processors %v: %w", ifi.Name, cpus, err)
	}
	return undo, nil
}

// isThread sees that a process is one of the kernel's threads that take packets: what is
// called so in a container that numbers processes itself may be anything.
func isThread(pid int) error {
	name, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
	if err != nil || !strings.HasPrefix(string(name), "napi/") {
		return fmt.Errorf("process %d is no such thread here: in a container, share the host's processes", pid)
	}
	return nil
}

// Threads are the process ids of the kernel's threads that take packets from an interface.
func Threads(ifi *net.Interface) ([]int, error) {
	f, err := netlink.GenlFamilyGet("netdev")
	if err != nil {
		return nil, fmt.Errorf("the kernel does not tell its threads, which it does from Linux 6.8 on: %w", err)
	}
	req := nl.NewNetlinkRequest(int(f.ID), unix.NLM_F_DUMP)
	req.AddRawData([]byte{cmdNAPIGet, 1, 0, 0}) // command, version, and two bytes that must be 0
	req.AddRawData(nl.NewRtAttr(attrIfindex, nl.Uint32Attr(uint32(ifi.Index))).Serialize())
	msgs, err := req.Execute(unix.NETLINK_GENERIC, 0)
	if err != nil {
		return nil, err
	}
	var pids []int
	for _, m := range msgs {
		attrs, err := nl.ParseRouteAttr(m[nl.SizeofGenlmsg:])
		if err != nil {
			return nil, err
		}
		for _, a := range attrs {
			if a.Attr.Type == attrPID && len(a.Value) == 4 {
				pids = append(pids, int(binary.NativeEndian.Uint32(a.Value)))
			}
		}
	}
	slices.Sort(pids)
	return pids, nil
}

// openSysfs opens the sysfs of our network namespace, which is not the one at /sys for who
// has entered another.
func openSysfs() (int, error) {
	fs, err := unix.Fsopen("sysfs", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return -1, err
	}
	defer func() { _ = unix.Close(fs) }()
	if err := unix.FsconfigCreate(fs); err != nil {
		return -1, err
	}
	return unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC, 0)
}

func read(dir int, path string) (string, error) {
	fd, err := unix.Openat(dir, path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", err
	}
	defer func() { _ = unix.Close(fd) }()
	b := make([]byte, 64)
	n, err := unix.Read(fd, b)
	if err != nil {
		return "", err
	}
	return strings.TrimSpace(string(b[:n])), nil
}

func write(dir int, path, value string) error {
	fd, err := unix.Openat(dir, path, unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	_, err = unix.Write(fd, []byte(value))
	return err
}
