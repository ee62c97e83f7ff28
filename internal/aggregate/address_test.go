package aggregate

import (
	"fmt"
	"net/netip"
	"runtime"
	"strings"
	"testing"
)

// An aggregator sends only to the address that a rank connects from.
func TestForeignDataAddress(t *testing.T) {
	s := listen(t, Config{})
	tree := oneLevel(t, s, 2)
	for want, ranks := range map[string][]member{
		"connects from 127.0.0.1": {{0, netip.MustParseAddrPort("192.0.2.1:9")}},
		"cannot be used":          {{0, netip.MustParseAddrPort("224.0.0.1:9")}},
		"place of another child":  {{1, netip.MustParseAddrPort("127.0.0.1:9")}},
		"the tree has 1 there":    nil,
	} {
		a := &attach{
			Job: "test", Session: 7, Secret: secret, Tree: tree.String(), Size: 2, Chunk: 1024, Window: 64, Ranks: ranks,
		}
		if err := checkRanks(tree, a, home, s.sockets[0]); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// A child aggregator reports addresses of other hosts, but not of groups, nor of the loopback interface of a machine
// that is not its own.
func TestReportedAddresses(t *testing.T) {
	narrow, wide := listen(t, Config{}), listen(t, Config{Listen: ":0"})
	far := netip.MustParseAddr("192.0.2.7")
	const bad, loop, version = "cannot be used", "loopback interface", "same version of IP"
	for _, c := range []struct {
		s    *Server
		addr string
		from netip.Addr
		want string // "" if the address is fine
	}{
		{narrow, "192.0.2.1:9", home, ""},
		{narrow, "[::ffff:192.0.2.1]:9", far, ""},
		{narrow, "127.0.0.1:9", home, ""},
		{narrow, "127.0.0.1:9", far, loop},
		{narrow, "[::ffff:127.0.0.1]:9", far, loop},
		{wide, "[::1]:9", far, loop},
		{narrow, "192.0.2.1:0", home, bad},
		{narrow, "0.0.0.0:9", home, bad},
		{narrow, "0.1.2.3:9", home, bad},
		{narrow, "[::ffff:0.0.0.0]:9", home, bad},
		{narrow, "[::]:9", home, bad},
		{narrow, "224.0.0.1:9", home, bad},
		{narrow, "[::ffff:239.1.2.3]:9", home, bad},
		{wide, "[ff02::1]:9", home, bad},
		{narrow, "255.255.255.255:9", home, bad},
		{narrow, "[::ffff:255.255.255.255]:9", home, bad},
		{narrow, "169.254.1.1:9", home, bad},
		{narrow, "[2001:db8::1]:9", home, version},
		{wide, "192.0.2.1:9", home, ""},
	} {
		text := fmt.Sprintf("%v;127.0.0.1:1=0>%v", c.s.Addr(), c.s.Addr())
		tree := parseTree(t, text, 1)
		a := &attach{Ranks: []member{{0, netip.MustParseAddrPort(c.addr)}}}
		err := checkRanks(tree, a, c.from, c.s.sockets[0])
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s from %v: %v, want %q", c.addr, c.from, err, c.want)
		}
	}
}

// The data socket refuses the broadcast address of a subnet, which does not show in the address.
func TestNoBroadcast(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("other systems have sockets of the standard library")
	}
	s := listen(t, Config{})
	to := netip.MustParseAddrPort("127.255.255.255:9")
	if _, err := s.sockets[0].send(newOutbox(sumPatience), to, []byte("x"), 1); err == nil {
		t.Error("a broadcast was sent")
	}
}
