package ip

import (
	"errors"
	"net"
	"net/netip"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/allcast/allcast/internal/fabric"
	"github.com/allcast/allcast/internal/testenv"
)

// A rank that has run out of something of its own says so, and blames no peer.
func TestTCPLimits(t *testing.T) {
	check := func(t *testing.T, rec *tcpRec, number syscall.Errno, text string) {
		t.Helper()
		if err := rec.waitLost(t, 0); !errors.Is(err, number) || !strings.Contains(err.Error(), text) {
			t.Error(err)
		}
		rec.mu.Lock()
		defer rec.mu.Unlock()
		if len(rec.lost[1]) > 0 {
			t.Error("the peer is blamed: ", rec.lost[1])
		}
	}
	t.Run("no file to dial", func(t *testing.T) {
		w, _ := newTCPFake(t, nil)
		restore := testenv.NoMoreFiles(t)
		op := fabric.OpKey{Seq: 1}
		large := make([]byte, peerCopy+1)
		w.ranks[0].Put(1, fabric.Piece{Op: op, Len: int64(len(large))}, large)
		check(t, w.recs[0], syscall.EMFILE, "raise it with ulimit -n")
		w.recs[0].wait(t, "put done", func() bool { return len(w.recs[0].done[1]) == 1 })
		restore()
		check(t, w.recs[0], syscall.EMFILE, "connect to rank 1")
	})
	t.Run("no file to accept", func(t *testing.T) {
		w, _ := newTCPFake(t, nil)
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = unix.Close(fd) })
		testenv.NoMoreFiles(t)
		to := netip.MustParseAddrPort(w.addrs[0])
		if err := unix.Connect(fd, &unix.SockaddrInet4{Addr: to.Addr().As4(), Port: int(to.Port())}); err != nil {
			t.Fatal(err)
		}
		check(t, w.recs[0], syscall.EMFILE, "accept the connection of a peer")
	})
	t.Run("no address", func(t *testing.T) {
		w, _ := newTCPFake(t, func(cfg *TCPConfig, _ *tcpRec) { cfg.Local = netip.MustParseAddr("192.0.2.77") })
		w.ranks[0].Send(1, []byte("hello"))
		check(t, w.recs[0], syscall.EADDRNOTAVAIL, "net.ipv4.ip_local_port_range is ")
	})
}

// Accepting fails without a free descriptor, but only a connection that waits shows that one is needed.
func TestWaiting(t *testing.T) {
	l, err := net.ListenTCP("tcp4", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	if waiting(l) {
		t.Error("a connection waits before there is one")
	}
	c, err := net.Dial("tcp4", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	if !testenv.Soon(func() bool { return waiting(l) }) {
		t.Error("no connection waits")
	}
}
