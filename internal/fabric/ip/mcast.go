package ip

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"

	"github.com/allcast/allcast/internal/fabric"
)

// McastConfig configures the unreliable side.
type McastConfig struct {
	Interface *net.Interface   // required: nothing may leave by another interface
	Local     netip.Addr       // this rank's address on it; selects IPv4 or IPv6
	Groups    []netip.AddrPort // one per stream (AddStreams); streams of a subgroup differ by port only
	Subgroups int              // 0: each stream is a subgroup
	Chunk     int              // payload of a datagram, the same on all ranks; 0: MaxPayload of the interface's MTU
	// Payload of one packet, the same on all ranks. A larger Chunk, of at most MaxLong, is sent as a
	// super-packet with one header, and is lost if the super-packet does not arrive whole. 0: Chunk
	// must fit one packet.
	Packet        int
	TTL           int // 0: 1 on loopback, else 16
	DSCP          int
	ReceiveBuffer int  // requested socket buffer in bytes; 0: 8 MiB
	PlainSockets  bool // no super-packets, neither sent (GSO) nor received (GRO)
	Sums          bool // headers carry a checksum (wire.Header.Sum)

	// CommGroup is the address of a communicator's group in a subgroup, which has the ports of the
	// subgroup. It differs from all other groups of the job. nil: all communicators share Groups.
	CommGroup func(id uint32, sub int) netip.Addr

	Poller    *Poller          // serves receivers after Attach; nil: they have none
	Placer    fabric.Placer    // places chunks of these groups (Filter); nil: there is none
	Allocator fabric.Allocator // of memory for the Placer

	// Filter, if set, attaches a filter to the receive socket of each group, in place of the filter
	// that drops this rank's own datagrams. The filter drops those as well, and counts the packets
	// that it drops. Linux only.
	Filter func(fd int, group, own netip.AddrPort) (dropped *atomic.Uint64, err error)
}

// Multicast is the unreliable side on UDP. Each stream has one socket that sends and one that receives,
// also for communicators with groups of their own. Streams share no memory that they write.
type Multicast struct {
	subgroups int
	caps      fabric.Capabilities
	senders   []mcastSender
	receivers []mcastReceiver
	features  func() Features
	cut       int
	comms     *mcastComms // nil: all communicators share the groups
	closeOnce sync.Once
	closeErr  error
}

type (
	mcastSender interface {
		fabric.Sender
		io.Closer
		route(comm uint32, to netip.Addr) // sends a communicator's datagrams to a group of its own
		unroute(comm uint32)              // sends them to the group of the subgroup again
	}
	mcastReceiver interface {
		fabric.Receiver
		io.Closer
		join(group netip.Addr) error
		leave(group netip.Addr)
	}
)

var _ fabric.Multicast = (*Multicast)(nil)

// OpenMulticast joins the groups, and tests that multicast works on this machine: a datagram to a
// group must reach its members here. Features says which accelerations of the kernel passed the test.
func OpenMulticast(cfg McastConfig) (*Multicast, error) {
	p, err := newMcastPlan(cfg)
	if err != nil {
		return nil, err
	}
	return openMulticast(p)
}

// giveGroups lets communicators have groups of their own, if the configuration has addresses for them.
func (m *Multicast) giveGroups(p *mcastPlan) {
	if p.CommGroup != nil {
		m.comms = &mcastComms{m: m, group: p.CommGroup, failed: p.noComms, joined: map[uint32][]netip.Addr{}}
		m.caps.Groups = m.comms
	}
}

// Capabilities are the results of the self-test, and the optional features of the configuration.
func (m *Multicast) Capabilities() fabric.Capabilities { return m.caps }

// Cut is the size of the packets, with headers, that a long chunk is cut into. 0: each chunk
// fits one packet.
func (m *Multicast) Cut() int { return m.cut }

// Subgroups is the number of group addresses.
func (m *Multicast) Subgroups() int { return m.subgroups }

// Streams is the number of groups.
func (m *Multicast) Streams() int { return len(m.senders) }

// Sender sends to a stream.
func (m *Multicast) Sender(stream int) fabric.Sender { return m.senders[stream] }

// Receiver receives the datagrams of other ranks from a stream.
func (m *Multicast) Receiver(stream int) fabric.Receiver { return m.receivers[stream] }

// Features says which accelerations are on, and why others are off.
func (m *Multicast) Features() Features { return m.features() }

// Close makes Receive and Send return fabric.ErrClosed, waits until they no longer use memory of the
// caller, and leaves the groups. A Sink must not call it.
func (m *Multicast) Close() error {
	m.closeOnce.Do(func() {
		if m.comms != nil {
			m.comms.close()
		}
		for _, r := range m.receivers {
			m.closeErr = errors.Join(m.closeErr, r.Close())
		}
		for _, s := range m.senders {
			m.closeErr = errors.Join(m.closeErr, s.Close())
		}
	})
	return m.closeErr
}

// Features are the features of the multicast sockets on this machine, for doctor and logs. Features
// that are off have a reason.
type Features struct {
	Sockets string // implementation: "linux" or "portable"

	GSO       bool // a batch leaves as one super-packet (UDP_SEGMENT)
	GSOReason string
	GRO       bool // a batch arrives as one (UDP_GRO)
	GROReason string

	Filter       bool // the kernel drops this rank's own datagrams before they take room in its queue
	FilterReason string

	// The requested and the actual SO_RCVBUF. Linux doubles the request, to make up for its own
	// bookkeeping: Got is twice Wanted if nothing was clamped.
	RecvBufferWanted int
	RecvBufferGot    int
	RecvBufferForced bool // by SO_RCVBUFFORCE, which rmem_max does not clamp

	// The charge of one chunk to a receive queue: alone in a datagram, and at worst in a super-packet.
	// 0: not measured.
	ChargeSingle int
	ChargeBatch  int
}

// RecvBufferClamped reports whether the kernel gave less than requested.
func (f Features) RecvBufferClamped() bool {
	return f.Sockets == mcastLinux && f.RecvBufferGot < 2*f.RecvBufferWanted || f.RecvBufferGot < f.RecvBufferWanted
}

// String is one line for a log.
func (f Features) String() string {
	how := "as asked"
	switch {
	case f.RecvBufferForced:
		how = "forced"
	case f.RecvBufferClamped():
		how = "clamped; raise net.core.rmem_max"
	}
	return fmt.Sprintf("%s sockets, GSO %s, GRO %s, own datagrams filtered by the kernel %s, receive "+
		"buffer %d bytes (wanted %d, %s)",
		f.Sockets, mcastOnOff(f.GSO, f.GSOReason), mcastOnOff(f.GRO, f.GROReason), mcastOnOff(f.Filter, f.FilterReason),
		f.RecvBufferGot, f.RecvBufferWanted, how)
}

func mcastOnOff(on bool, reason string) string {
	if on {
		return "on"
	}
	return "off (" + reason + ")"
}

const (
	mcastLinux    = "linux"
	mcastPortable = "portable"
	mcastPlain    = "switched off"
)
