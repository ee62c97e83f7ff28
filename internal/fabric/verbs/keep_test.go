//go:build verbs

package verbs

import (
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// lines is a log that a test reads.
type lines chan string

func (l lines) Write(b []byte) (int, error) {
	l <- string(b)
	return len(b), nil
}

// until waits for a line that contains text, and returns the first one.
func (l lines) until(t *testing.T, text string) string {
	t.Helper()
	late := time.After(30 * time.Second)
	for {
		select {
		case line := <-l:
			if strings.Contains(line, text) {
				return line
			}
		case <-late:
			t.Fatalf("no log line contains %q", text)
		}
	}
}

// After some attempts to join a group again, the keeper gives up, with an error that names the group. A
// group that was joined again is used again.
func TestRejoinGivesUp(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = w.Close() }()
	log := make(lines, 100)
	joined, bound := 0, 0
	dev := &Device{name: "mlx5_0", port: 1, log: slog.New(slog.NewTextHandler(log, nil))}
	k := &keeper{
		watcher: &watcher{pollable{f: r}, make(chan struct{})}, wait: time.Millisecond,
		log:    (&group{addr: netip.MustParseAddr("239.1.2.3")}).log(dev),
		rejoin: func() int { joined++; return 0 },
		rebind: func() error { bound++; return nil },
	}
	if k.raw, err = r.SyscallConn(); err != nil {
		t.Fatal(err)
	}
	fd := -1
	if err := k.raw.Control(func(d uintptr) { fd = int(d) }); err != nil {
		t.Fatal(err)
	}
	take := func() int {
		var b [1]byte
		if n, err := unix.Read(fd, b[:]); n != 1 || err != nil {
			return 0
		}
		return int(b[0])
	}
	happens := func(kind byte) {
		t.Helper()
		if _, err := w.Write([]byte{kind}); err != nil {
			t.Fatal(err)
		}
	}
	go k.run(take, k.handle, k.late)
	happens(groupLost)
	line := log.until(t, "level=ERROR")
	for _, want := range []string{"239.1.2.3", "mlx5_0:1", fmt.Sprintf("tries=%d", maxRejoins)} {
		if !strings.Contains(line, want) {
			t.Errorf("no %q in %s", want, line)
		}
	}
	happens(groupJoined) // the answer was late
	log.until(t, "joined again")
	happens(groupLost)
	log.until(t, "joining it again")
	happens(groupJoined)
	log.until(t, "was joined again")
	k.stop()
	if joined != maxRejoins+1 || bound != 2 {
		t.Errorf("the group was requested %d times, and bound %d times", joined, bound)
	}
}

// Every attempt to use a group that comes back with another key fails, since the queue pair keeps its
// key.
func TestRebindOtherKey(t *testing.T) {
	g := &group{addr: netip.MustParseAddr("239.1.2.3"), at: groupAddress{mlid: 0xc001, qkey: 0xa}}
	g.cm.at = groupAddress{mlid: 0xc002, qkey: 0xb}
	q := &udQP{group: g}
	m := &Multicast{}
	for i := range 3 {
		if err := m.rebind(nil, q); err == nil || !strings.Contains(err.Error(), "0xb instead of 0xa") {
			t.Errorf("try %d: %v", i, err)
		}
	}
	if g.at.qkey != 0xa || g.at.mlid != 0xc001 {
		t.Errorf("the group has key %#x and LID %#x", g.at.qkey, g.at.mlid)
	}
}
