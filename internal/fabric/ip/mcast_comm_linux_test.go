package ip

import (
	"net"
	"net/netip"
	"strings"
	"testing"
)

// When the sockets can join no more groups, AddComm says how to get more. A communicator that failed has
// joined nothing, and its datagrams go to the job's groups. Removing a communicator makes room.
func TestCommGroupsRunOut(t *testing.T) {
	cfg := mcastLoopback(t, 2, false)
	a, b := mcastVariants[0].open(t, cfg), mcastVariants[0].open(t, cfg)
	const limit = 2000
	id := uint32(100)
	var err error
	for ; err == nil && id < limit; id++ {
		err = a.comms.AddComm(id, "")
	}
	if err == nil {
		t.Skipf("the sockets joined %d groups", limit)
	}
	if !strings.Contains(err.Error(), "igmp_max_memberships") {
		t.Errorf("the error gives no advice: %v", err)
	}
	failed := id - 1
	for sub := range 2 {
		mcastTell(t, a, sub, failed)
		mcastHear(t, b, sub, failed)
	}
	a.comms.RemoveComm(failed - 1)
	for _, m := range []*Multicast{a, b} {
		if err := m.comms.AddComm(failed, ""); err != nil {
			t.Fatal(err)
		}
	}
	mcastTell(t, b, 1, failed)
	mcastHear(t, a, 1, failed)
}

// A socket that receives groups of communicators receives nothing that was sent to the machine's address.
func TestCommGroupsNoUnicast(t *testing.T) {
	cfg := mcastLoopback(t, 1, false)
	a, b := mcastVariants[0].open(t, cfg), mcastVariants[0].open(t, cfg)
	to := net.UDPAddrFromAddrPort(netip.AddrPortFrom(cfg.Local, cfg.Groups[0].Port()))
	conn, err := net.DialUDP("udp4", nil, to)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	for range 10 {
		if _, err := conn.Write(make([]byte, 100)); err != nil {
			t.Fatal(err)
		}
	}
	mcastTell(t, a, 0, 3)
	mcastHear(t, b, 0, 3)
	if st := b.Receiver(0).Stats(); st.Datagrams != 1 || st.Malformed != 0 {
		t.Errorf("%+v", st)
	}
}
