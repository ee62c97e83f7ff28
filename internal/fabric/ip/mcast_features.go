package ip

import "fmt"

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
