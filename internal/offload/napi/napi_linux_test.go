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

	"github.com/allcast/allcast/internal/testenv"
)

// veth makes a pair of interfaces in a network namespace of their own, which ends with the
// test's thread.
func veth(t *testing.T) *net.Interface {
	t.Helper()
	testenv.NeedRoot(t, "interfaces and their threads need root")
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
	ifi := setUp(t)
	if _, err := Threads(ifi); err != nil {
		t.Skip(err)
	}
	return ifi
}

// setUp turns both interfaces on and returns the left one.
func setUp(t *testing.T) *net.Interface {
	t.Helper()
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
	if err := undo(); err != nil {
		t.Error(err)
	}
	sys, err := openSysfs()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = sys.Close() }()
	if v, err := sys.ReadFile("class/net/left/threaded"); err != nil || string(v) != "0\n" {
		t.Errorf("threaded is %q afterwards, %v", v, err)
	}
}

func TestDedicateBad(t *testing.T) {
	left := veth(t)
	for _, c := range []struct {
		ifi  *net.Interface
		cpus []int
		want string
	}{
		{left, []int{1 << 9}, "left, processors [512]"}, // does not exist
		{left, nil, "left: no processors"},
		{&net.Interface{Name: "lo", Flags: net.FlagLoopback}, []int{0}, "lo has none"},
		{&net.Interface{Name: "nowhere", Index: 999}, []int{0}, "nowhere: name of interface 999: no such interface"},
	} {
		if _, err := Dedicate(c.ifi, c.cpus); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s, processors %v: %v, want %q", c.ifi.Name, c.cpus, err, c.want)
		}
	}
}

func TestFeature(t *testing.T) {
	ifi := veth(t)
	for _, on := range []bool{true, true, false} {
		if err := Feature("left", "rx-gro", on); err != nil {
			t.Fatal(err)
		}
		if s := settingsOf(t, ifi); s.Features["rx-gro"] != on {
			t.Errorf("rx-gro was set to %v, settings are %+v", on, s)
		}
	}
	for _, c := range [][2]string{{"left", "rx-dreams"}, {"nowhere", "rx-gro"}} {
		err := Feature(c[0], c[1], true)
		if err == nil || !strings.Contains(err.Error(), c[0]) || !strings.Contains(err.Error(), c[1]) {
			t.Errorf("feature %s of %s: %v", c[1], c[0], err)
		}
	}
}

// What the kernel calls a thread is another process where numbers differ.
func TestIsThread(t *testing.T) {
	if err := isThread(os.Getpid()); err == nil || !strings.Contains(err.Error(), "container") {
		t.Errorf("this process: %v", err)
	}
}
