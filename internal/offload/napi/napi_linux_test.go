package napi

import (
	"net"
	"os"
	"runtime"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// veth makes a pair of interfaces in a network namespace of their own, which ends with the
// test's thread.
func veth(t *testing.T) *net.Interface {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("interfaces and their threads need root")
	}
	runtime.LockOSThread() // for good: the thread is not given back
	ns, err := netns.New()
	if err != nil {
		t.Skipf("no network namespaces: %v", err)
	}
	t.Cleanup(func() { _ = ns.Close() })
	attrs := netlink.NewLinkAttrs()
	attrs.Name = "left"
	if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: "right"}); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"left", "right"} {
		l, err := netlink.LinkByName(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := netlink.LinkSetUp(l); err != nil {
			t.Fatal(err)
		}
	}
	ifi, err := net.InterfaceByName("left")
	if err != nil {
		t.Fatal(err)
	}
	return ifi
}

func TestDedicate(t *testing.T) {
	ifi := veth(t)
	undo, err := Dedicate(ifi, []int{0})
	if err != nil {
		t.Fatal(err)
	}
	pids, err := Threads(ifi)
	if err != nil || len(pids) == 0 {
		t.Fatalf("threads %v, %v", pids, err)
	}
	for _, pid := range pids {
		var set unix.CPUSet
		if err := unix.SchedGetaffinity(pid, &set); err != nil {
			t.Fatal(err)
		}
		if set.Count() != 1 || !set.IsSet(0) {
			t.Errorf("thread %d may run on %d processors", pid, set.Count())
		}
	}
	undo()
	sys, err := openSysfs()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Close(sys) }()
	if v, err := read(sys, "class/net/left/threaded"); err != nil || v != "0" {
		t.Errorf("threaded is %q afterwards, %v", v, err)
	}
}

func TestDedicateBad(t *testing.T) {
	ifi := veth(t)
	if _, err := Dedicate(ifi, []int{1 << 9}); err == nil || !strings.Contains(err.Error(), "left") {
		t.Errorf("a processor that does not exist: %v", err)
	}
	if _, err := Dedicate(&net.Interface{Name: "lo", Flags: net.FlagLoopback}, []int{0}); err == nil || !strings.Contains(err.Error(), "lo has none") {
		t.Errorf("loopback: %v", err)
	}
	if _, err := Dedicate(&net.Interface{Name: "nowhere", Index: 999}, []int{0}); err == nil || !strings.Contains(err.Error(), "nowhere") {
		t.Errorf("no such interface: %v", err)
	}
}

func TestFeature(t *testing.T) {
	veth(t)
	undo, err := Feature("left", "rx-gro", true)
	if err != nil {
		t.Fatal(err)
	}
	undo()
	if _, err := Feature("left", "rx-dreams", true); err == nil || !strings.Contains(err.Error(), "rx-dreams") {
		t.Errorf("got %v", err)
	}
}

// What the kernel calls a thread is another process where numbers differ.
func TestIsThread(t *testing.T) {
	if err := isThread(os.Getpid()); err == nil || !strings.Contains(err.Error(), "container") {
		t.Errorf("this process: %v", err)
	}
}
