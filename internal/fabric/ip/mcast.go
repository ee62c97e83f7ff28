package ip

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"

	"github.com/allcast/allcast/internal/fabric"
)

// McastConfig says which groups to open and how.
type McastConfig struct {
	Interface  *net.Interface   // always set: nothing may leave by another interface
	Local      netip.Addr       // our address on it; decides IPv4 or IPv6
	Groups     []netip.AddrPort // one a subgroup
	Chunk      int              // payload a datagram, agreed with the others; 0: MaxPayload of the interface's MTU
	Packet     int              // payload of one packet, agreed likewise; a larger Chunk, of at most MaxLong, is then sent as a super-packet with one header, and lost if that does not arrive whole. 0: Chunk must fit one
	TTL        int              // 0: 1 on loopback, else 16
	DSCP       int
	RecvBuffer int  // wanted socket buffer in bytes; 0: 8 MiB
	Plain      bool // off-switch: no super-packets, neither sent (GSO) nor received (GRO)
	Sums       bool // headers carry a checksum (fabric.Header.Sum)

	Poller    *Poller          // serves receivers after Attach; nil: they have none
	Placer    fabric.Placer    // places chunks of these groups (Filter); nil: there is none
	Allocator fabric.Allocator // of memory for the Placer

	// Filter, if set, is attached to each group's receive socket, group by group, instead of
	// the filter that drops what we sent ourselves, and does that too. It counts the packets that
	// it drops. Linux only.
	Filter func(fd int, group, own netip.AddrPort) (dropped *atomic.Uint64, err error)
}

// Multicast is the multicast side of the IP fabric: for each subgroup a socket that
// sends and one that receives.
type Multicast struct {
	caps      fabric.Capabilities
	senders   []fabric.Sender
	receivers []fabric.Receiver
	features  func() Features
	cut       int
	closers   []io.Closer // receivers first: they are the ones that wait
	closeOnce sync.Once
	closeErr  error
}

var _ fabric.Multicast = (*Multicast)(nil)

// OpenMulticast joins the groups and tests that multicast works on this machine:
// what is sent to a group must come back to its members here. Which of the
// kernel's accelerations stood that test is in Features.
func OpenMulticast(cfg McastConfig) (*Multicast, error) {
	p, err := newMcastPlan(cfg)
	if err != nil {
		return nil, err
	}
	return openMulticast(p)
}

// Capabilities are the results of the self-test, and the optional features of the configuration.
func (m *Multicast) Capabilities() fabric.Capabilities { return m.caps }

// Cut is the size of the packets, headers of ours included, that a chunk of several is cut in;
// 0: each fits one.
func (m *Multicast) Cut() int { return m.cut }

// Subgroups is the number of groups.
func (m *Multicast) Subgroups() int { return len(m.senders) }

// Sender sends to a subgroup.
func (m *Multicast) Sender(sub int) fabric.Sender { return m.senders[sub] }

// Receiver receives what others send to a subgroup.
func (m *Multicast) Receiver(sub int) fabric.Receiver { return m.receivers[sub] }

// Features says which accelerations are on, and why the others are not.
func (m *Multicast) Features() Features { return m.features() }

// Close makes Receive and Send calls return fabric.ErrClosed, waits until they have
// let go of their memory, and leaves the groups. A Sink must not call it.
func (m *Multicast) Close() error {
	m.closeOnce.Do(func() {
		errs := make([]error, 0, len(m.closers))
		for _, c := range m.closers {
			errs = append(errs, c.Close())
		}
		m.closeErr = errors.Join(errs...)
	})
	return m.closeErr
}
