package ip

import (
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// In a user namespace, an ordinary user is root of a private network. This package's tests therefore run
// once more with IPv6, for which loopback lacks a multicast route, and on an isolated Ethernet.
func TestInNamespace(t *testing.T) {
	if os.Getenv(mcastNamespaceVar) != "" {
		t.Skip("the tests run in a namespace already")
	}
	if testing.Short() {
		t.Skip("short mode: this test runs all tests again")
	}
	const tests = "^Test(Multicast(Conformance|Own|Allocates|Wire)|Room)$"
	t.Run("loopback", func(t *testing.T) {
		inNamespace(t, "loopback", 20, strings.Replace(tests, "|Wire", "", 1)+"/^v6",
			"ip link set lo up && ip -6 route add local ff00::/8 dev lo table local")
	})
	t.Run("veth", func(t *testing.T) {
		inNamespace(t, "veth", 20, tests+"/^v[46]", mcastVeth)
	})
}

// mcastVeth makes an Ethernet of two interfaces.
const mcastVeth = "ip link set lo up && ip link add allcast0 mtu 1500 type veth peer name allcast1 && " +
	"ip link set allcast0 up && ip link set allcast1 up && " +
	"ip addr add 192.0.2.1/24 dev allcast0 && ip -6 addr add 2001:db8::1/64 dev allcast0 nodad && " +
	"ip addr add 192.0.2.2/24 dev allcast1 && " +
	// Both ends are on this machine, which drops datagrams from its own address by default.
	"echo 1 >/proc/sys/net/ipv4/conf/allcast1/accept_local && " +
	"echo 0 >/proc/sys/net/ipv4/conf/all/rp_filter && echo 0 >/proc/sys/net/ipv4/conf/allcast1/rp_filter"

// inNamespace runs tests of this package in a network of their own, of which at least some must pass.
func inNamespace(t *testing.T, name string, least int, tests, setup string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "/bin/sh", "-c", setup+` || exit 77; exec "$0" "$@"`,
		os.Args[0], "-test.run="+tests, "-test.v")
	cmd.Env = append(os.Environ(), mcastNamespaceVar+"="+name)
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNET,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
	}
	out, err := cmd.CombinedOutput()
	if exit, ok := err.(*exec.ExitError); err != nil && (!ok || exit.ExitCode() == 77) {
		t.Skipf("no such namespace here: %v\n%s", err, out)
	}
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	passed := strings.Count(string(out), "--- PASS: Test")
	if passed < least || strings.Contains(string(out), "--- SKIP") {
		t.Errorf("%d tests passed\n%s", passed, out)
	}
	t.Logf("%d tests passed", passed)
}

// Super-packets cross a link whole.
func TestMulticastWire(t *testing.T) {
	if os.Getenv(mcastNamespaceVar) != "veth" {
		t.Skip("TestInNamespace runs it")
	}
	// Portable sockets are left out: with both ends on one machine, they also receive the copy that loops
	// back to the sending end (IP_MULTICAST_ALL).
	for _, v := range mcastVariants[:2] {
		t.Run(v.name, func(t *testing.T) {
			groups := mcastNextGroups(1, false)
			var ends []*Multicast
			for i, addr := range []string{"192.0.2.1", "192.0.2.2"} {
				ifc, err := net.InterfaceByName("allcast" + strconv.Itoa(i))
				if err != nil {
					t.Fatal(err)
				}
				ends = append(ends, v.open(t, McastConfig{Interface: ifc, Local: netip.MustParseAddr(addr), Groups: groups}))
			}
			caps := ends[0].Capabilities()
			const chunks = 200
			data := mcastData(caps.Chunk, chunks)
			sink := newMcastSink(caps.Chunk, chunks)
			sink.guess = mcastRange(0, chunks)
			mcastSend(t, ends[0].Sender(0), data, caps.Chunk, caps.Batch, mcastRange(0, chunks)...)
			r := ends[1].Receiver(0)
			mcastUntil(t, r, sink, chunks)
			mcastSame(t, sink.buf, data)
			want := uint64((chunks + caps.Batch - 1) / caps.Batch)
			if st := r.Stats(); st.Calls != want || st.Dropped != 0 {
				t.Errorf("%+v, want %d calls", st, want)
			}
		})
	}
}
