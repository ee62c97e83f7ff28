package ip

import "fmt"

// Features says what the multicast sockets do on this machine: what doctor and
// logs print. A reason is there when something is off.
type Features struct {
	Sockets string // which implementation: "linux" or "portable"

	GSO       bool // a batch leaves as one super-packet (UDP_SEGMENT)
	GSOReason string
	GRO       bool // and arrives as one (UDP_GRO)
	GROReason string

	Filter       bool // the kernel drops our own datagrams before they take room in our queue
	FilterReason string

	// What SO_RCVBUF was asked for, and what the kernel then said it is. Linux doubles
	// what it is asked for, to make up for its own bookkeeping: Got is twice Wanted
	// when nothing was clamped.
	RecvBufferWanted int
	RecvBufferGot    int
	RecvBufferForced bool // SO_RCVBUFFORCE worked, which rmem_max does not clamp

	// What the kernel charges a receive queue for one chunk: alone in a datagram, and
	// at worst in a super-packet. 0: not measured.
	ChargeSingle int
	ChargeBatch  int
}

// RecvBufferClamped says that the kernel gave less than was wanted.
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
	return fmt.Sprintf("%s sockets, GSO %s, GRO %s, own datagrams filtered by the kernel %s, receive buffer %d bytes (wanted %d, %s)",
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
