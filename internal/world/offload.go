package world

import (
	"fmt"
	"net/netip"

	"github.com/allcast/allcast/internal/fabric/ip"
	"github.com/allcast/allcast/internal/offload/bpf"
	"github.com/allcast/allcast/internal/settings"
)

// Reasons and messages that occur more than once.
const (
	noMulticast  = "there is no multicast"
	hostReceives = "this process receives, not the kernel"
)

// offload loads the kernel's receive program if the settings ask for it.
func (j *joining) offload() (err error) {
	switch {
	case j.Datapath == settings.Host:
	case j.Fabric == settings.Verbs:
		j.noBPF = "data that arrives by verbs does not pass the kernel"
	case j.Size == 1:
		j.noBPF = "there is only one rank"
	case j.NoMulticast:
		j.noBPF = noMulticast
	default:
		if err = j.loadOffload(); err != nil && j.Datapath != settings.BPF {
			j.noBPF, err = err.Error(), nil
			j.Logger.Info(hostReceives, "why", j.noBPF)
		}
	}
	return err
}

func (j *joining) loadOffload() (err error) {
	unavailable := func(format string, args ...any) error {
		return fmt.Errorf("%w: %w", bpf.ErrUnavailable, fmt.Errorf(format, args...))
	}
	switch {
	case j.Secure:
		return unavailable("the kernel has no key for sealed data: use the host datapath with Options.Secure")
	case j.Integrity:
		return unavailable("the kernel does not check sums: use the host datapath with Options.Integrity")
	case j.Fault.Corrupt > 0:
		return unavailable("the kernel cannot damage datagrams on purpose: remove corrupt from ALLCAST_FAULT")
	case j.poller == nil:
		return unavailable("nothing can wake the process (epoll is missing): use the host datapath")
	}
	ports := map[uint16]bool{}
	for _, g := range j.Groups[:min(len(j.Groups), j.Subgroups)] {
		if ports[g.Port()] {
			return unavailable("two subgroups have port %d, by which the kernel tells them apart: "+
				"give each its own (Options.Groups, ALLCAST_GROUPS)", g.Port())
		}
		ports[g.Port()] = true
	}
	chunk := ip.MaxPayload(j.ifi.MTU, j.local.Is6() && !j.local.Is4In6())
	if j.Chunk > chunk {
		if j.hook() == bpf.XDP {
			return unavailable(xdpTooLong, j.Chunk, chunk)
		}
		chunk = j.Chunk
	}
	j.off, err = bpf.New(bpf.Config{
		Hook: j.hook(), Interface: j.ifi, Chunk: chunk, Poller: j.poller,
		Fault: bpf.Fault{
			Drop: j.Fault.Drop, Dup: j.Fault.Dup, Reorder: j.Fault.Reorder, Seed: j.Fault.Seed + uint64(j.Rank),
		},
		Complain: func(err error) {
			j.Logger.Warn("this process, not the kernel, receives into some buffers", "why", err)
		},
	})
	return err
}

func (j *joining) hook() bpf.Hook { return bpf.Hook(j.Hook) }

const xdpTooLong = "the hook xdp sees single packets, and a chunk of %d bytes takes several: " +
	"use chunks of at most %d, or another hook"

// tooLong returns why the hook cannot receive chunks of the size that the ranks have agreed on; "" if it
// can. The rank with the smallest packets determines packet.
func (j *joining) tooLong(chunk, packet int) string {
	if j.off == nil || j.hook() != bpf.XDP || chunk <= packet {
		return ""
	}
	return fmt.Sprintf(xdpTooLong, chunk, packet)
}

// severalRanks is the reason why auto does not let the kernel receive for several ranks of a machine.
const severalRanks = "several ranks of this machine receive: their processes do so in parallel, " +
	"and the kernel would do it on the processor that takes the packets"

// share drops an offload that would be slower than this process, if the settings permit. Otherwise it tells the
// offload whether other ranks on this machine receive the same packets.
func (j *joining) share(addrs []string) {
	switch {
	case j.off == nil || !sharesAddress(addrs, j.Rank, j.local):
	case j.Datapath == settings.Auto:
		j.Logger.Info(hostReceives, "why", severalRanks)
		j.dropOffload(severalRanks)
	default:
		j.off.Share()
	}
}

// sharesAddress reports whether another rank has the address of this rank. A rank whose address does not parse may.
func sharesAddress(addrs []string, rank int, local netip.Addr) bool {
	here := local.Unmap().WithZone("")
	for r, a := range addrs {
		at, err := netip.ParseAddrPort(a)
		if r != rank && (err != nil || at.Addr().Unmap().WithZone("") == here) {
			return true
		}
	}
	return false
}

func (j *joining) dropOffload(why string) {
	if j.off != nil {
		_ = j.off.Close()
		j.off, j.noBPF = nil, why
	}
}
