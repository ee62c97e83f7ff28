package napi

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// From linux/netdev.h.
const (
	cmdNAPIGet  = 11
	attrIfindex = 1
	attrID      = 2
	attrPID     = 4
)

// Dedicate binds the threads that take packets from an interface to processors, round-robin. It
// needs CAP_NET_ADMIN and CAP_SYS_ADMIN. All users of the interface, in this process
// or in others, share its settings; its threads run on the processors of the latest user.
//
// The last undo restores the original settings. It does not unbind threads that the interface had
// before. A process that dies counts as having called undo. If it was the last, the interface keeps
// the settings until the next user calls undo. Undo may run on any thread; repeated calls do
// nothing.
func Dedicate(ifi *net.Interface, cpus []int) (undo func() error, err error) {
	return dedicate(stateDir, ifi, cpus)
}

func dedicate(registry string, ifi *net.Interface, cpus []int) (undo func() error, err error) {
	if ifi.Flags&net.FlagLoopback != 0 {
		return nil, fmt.Errorf("receive cores: %s has none: its packets are received on the sender's processor; "+
			"use another interface", ifi.Name)
	}
	if len(cpus) == 0 {
		return nil, fmt.Errorf("receive cores of %s: no processors given", ifi.Name)
	}
	runtime.LockOSThread() // each thread has its own network namespace
	defer runtime.UnlockOSThread()
	dev, err := openDevice(ifi)
	if err != nil {
		return nil, fmt.Errorf("receive cores of %s: %w", ifi.Name, err)
	}
	s, err := join(registry, dev, func() error { return bind(ifi, cpus) })
	if err != nil {
		dev.close()
		return nil, fmt.Errorf("receive cores of %s, processors %v: %w", ifi.Name, cpus, err)
	}
	return sync.OnceValue(func() error {
		if err := s.leave(); err != nil {
			return fmt.Errorf("restore %s: %w", ifi.Name, err)
		}
		return nil
	}), nil
}

// bind binds an interface's threads to processors. If it fails, the threads stay where they were:
// other users rely on them.
func bind(ifi *net.Interface, cpus []int) (err error) {
	pids, err := Threads(ifi)
	if err == nil && len(pids) == 0 {
		err = errors.New("the kernel has made no threads for it")
	}
	if err != nil {
		return err
	}
	before := make([]unix.CPUSet, len(pids))
	for i, pid := range pids {
		if err = isThread(pid); err == nil {
			err = unix.SchedGetaffinity(pid, &before[i])
		}
		if err == nil {
			var set unix.CPUSet
			set.Set(cpus[i%len(cpus)])
			err = unix.SchedSetaffinity(pid, &set)
		}
		if err != nil {
			for k, pid := range pids[:i] {
				_ = unix.SchedSetaffinity(pid, &before[k])
			}
			return fmt.Errorf("bind thread %d to processor %d: %w", pid, cpus[i%len(cpus)], err)
		}
	}
	return nil
}

// isThread checks that a process is a kernel thread that takes packets. In a container with its
// own process numbers, the number may belong to another process.
func isThread(pid int) error {
	name, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
	if err != nil || !strings.HasPrefix(string(name), "napi/") {
		return fmt.Errorf("process %d is no such thread here: in a container, share the host's processes", pid)
	}
	return nil
}

// Threads returns the process ids of the kernel threads that take packets from an interface.
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
