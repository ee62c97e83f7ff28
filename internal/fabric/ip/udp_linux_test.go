package ip

import (
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// Without the kernel's filter, a rank recognises its own datagrams by their source.
func TestOwnWithoutFilter(t *testing.T) {
	for _, plain := range []bool{false, true} {
		cfg := mcastLoopback(t, 1, false)
		cfg.PlainSockets = plain
		a, b := mcastVariants[0].open(t, cfg), mcastVariants[0].open(t, cfg)
		r, s := a.receivers[0].(*udpReceiver), a.senders[0].(*udpSender)
		p, err := newMcastPlan(cfg)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.raw.Control(func(fd uintptr) {
			own, err := udpSockname(int(fd))
			if err != nil {
				t.Error(err)
			}
			r.in.own = newUDPName(p, own)
			r.filtered = nil
		}); err != nil {
			t.Fatal(err)
		}
		if err := r.socket.Control(func(fd uintptr) {
			if err := unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_DETACH_FILTER, 0); err != nil {
				t.Error(err)
			}
		}); err != nil {
			t.Fatal(err)
		}
		caps := a.Capabilities()
		data := mcastData(caps.Chunk, 8)
		mcastSend(t, s, data, caps.Chunk, caps.Batch, mcastRange(1, 8)...)
		mcastSend(t, b.Sender(0), data, caps.Chunk, 1, 0)
		sink := newMcastSink(caps.Chunk, 8)
		sink.guess = mcastRange(0, 8)
		mcastUntil(t, r, sink, 1)
		if st := r.Stats(); st.Datagrams != 1 || sink.got[0] != 1 || len(sink.got) != 1 || st.Calls < 2 {
			t.Errorf("got %v, stats %+v", sink.got, st)
		}
	}
}

// A kernel that starts to refuse super-packets costs speed, but no data.
func TestGSORefused(t *testing.T) {
	a, b := mcastPair(t, mcastVariants[0])
	if !a.Features().GSO {
		t.Skipf("no GSO here: %s", a.Features().GSOReason)
	}
	s := a.senders[0].(*udpSender)
	if err := s.raw.Control(func(fd uintptr) {
		// Super-packets need checksums.
		if err := unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_NO_CHECK, 1); err != nil {
			t.Error(err)
		}
	}); err != nil {
		t.Fatal(err)
	}
	caps := a.Capabilities()
	data := mcastData(caps.Chunk, 14)
	mcastSend(t, s, data, caps.Chunk, caps.Batch, mcastRange(0, 14)...)
	sink := newMcastSink(caps.Chunk, 14)
	mcastUntil(t, b.Receiver(0), sink, 14)
	mcastSame(t, sink.buf, data)
	if f := a.Features(); f.GSO || !strings.Contains(f.GSOReason, "while running") {
		t.Errorf("GSO %v %q", f.GSO, f.GSOReason)
	}
	if st := a.Receiver(0).Stats(); st.Dropped != 0 {
		t.Errorf("stats %+v", st)
	}
}

// The kernel reports the options that were set.
func TestSocketOptions(t *testing.T) {
	cfg := mcastLoopback(t, 1, false)
	cfg.DSCP, cfg.TTL = 10, 7
	m := mcastVariants[0].open(t, cfg)
	if err := m.senders[0].(*udpSender).raw.Control(func(fd uintptr) {
		for _, c := range []udpOption{
			{"IP_TOS", unix.IPPROTO_IP, unix.IP_TOS, 40},
			{"IP_MULTICAST_TTL", unix.IPPROTO_IP, unix.IP_MULTICAST_TTL, 7},
			{"IP_MTU_DISCOVER", unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_DONT},
			{"IP_MULTICAST_LOOP", unix.IPPROTO_IP, unix.IP_MULTICAST_LOOP, 1},
		} {
			if got, err := unix.GetsockoptInt(int(fd), c.level, c.opt); err != nil || got != c.value {
				t.Errorf("%s is %d (%v), not %d", c.name, got, err, c.value)
			}
		}
	}); err != nil {
		t.Fatal(err)
	}
}
