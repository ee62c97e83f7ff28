package world

import (
	"fmt"
	"net/netip"

	"github.com/allcast/allcast/internal/fabric/ip"
	"github.com/allcast/allcast/internal/offload/bpf"
)

// Datapaths: who puts received chunks in place.
const (
	Host = "host" // this process
	BPF  = "bpf"  // the kernel
	Auto = "auto" // the kernel, if it can
)

const noMulticast = "there is no multicast"

func (j *joining) hook() bpf.Hook {
	h, _ := bpf.ParseHook(j.Hook) // it was checked
	return h
}

// offload loads what receives in the kernel, if it is wanted.
func (j *joining) offload() error {
	switch {
	case j.Datapath != BPF && j.Datapath != Auto:
		return nil
	case j.Fabric == Verbs:
		j.noBPF = "what comes by verbs does not pass the kernel"
		return nil
	case j.Size == 1:
		j.noBPF = "there is only one rank"
		return nil
	case j.NoMulticast != "":
		j.noBPF = noMulticast
		return nil
	}
	err := j.loadOffload()
	switch {
	case err == nil:
		return nil
	case j.Datapath == BPF:
		return err
	}
	j.noBPF = err.Error()
	j.Log.Info("this process receives, not the kernel", "why", j.noBPF)
	return nil
}

func (j *joining) loadOffload() (err error) {
	switch {
	case j.Secure:
		return fmt.Errorf("%w: the kernel has no key for what is sealed: use the host datapath with Options.Secure", bpf.ErrUnavailable)
	case j.Integrity:
		return fmt.Errorf("%w: the kernel does not check sums: use the host datapath with Options.Integrity", bpf.ErrUnavailable)
	case j.Fault.Corrupt > 0:
		return fmt.Errorf("%w: it cannot damage datagrams on purpose: leave corrupt out of ALLCAST_FAULT", bpf.ErrUnavailable)
	case j.poller == nil:
		return fmt.Errorf("%w: the process has no way to be woken (epoll): use the host datapath", bpf.ErrUnavailable)
	}
	ports := map[uint16]bool{}
	for _, g := range j.Groups[:min(len(j.Groups), max(1, j.Subgroups))] {
		if ports[g.Port()] {
			return fmt.Errorf("%w: two subgroups have port %d, by which the kernel tells them apart: give each its own (Options.Groups, ALLCAST_GROUPS)", bpf.ErrUnavailable, g.Port())
		}
		ports[g.Port()] = true
	}
	chunk := ip.MaxPayload(j.ifi.MTU, j.local.Is6() && !j.local.Is4In6())
	if j.Chunk > chunk {
		if j.hook() == bpf.XDP {
			return fmt.Errorf("%w: the hook xdp sees single packets, and a chunk of %d bytes takes several: use chunks of at most %d, or another hook", bpf.ErrUnavailable, j.Chunk, chunk)
		}
		chunk = j.Chunk
	}
	j.off, err = bpf.New(bpf.Config{
		Hook: j.hook(), Interface: j.ifi, Chunk: chunk, Poller: j.poller,
		Fault: bpf.Fault{Drop: j.Fault.Drop, Dup: j.Fault.Dup, Reorder: j.Fault.Reorder, Seed: j.Fault.Seed + uint64(j.Rank)},
		Complain: func(err error) {
			j.Log.Warn("buffers are received by this process, not by the kernel", "why", err)
		},
	})
	return err
}

// tooLong says why chunks cannot be received at the hook, once it is known in which packets
// they come: those of the rank with the smallest.
func (j *joining) tooLong(chunk, packet int) string {
	if j.off == nil || j.hook() != bpf.XDP || chunk <= packet {
		return ""
	}
	return fmt.Sprintf("the hook xdp sees single packets, and a chunk of %d bytes takes several: use chunks of at most %d, or another hook", chunk, packet)
}

// share finds out whether ranks on this machine want our packets too.
func (j *joining) share(addrs []string) {
	if j.off == nil {
		return
	}
	for r, a := range addrs {
		if at, err := netip.ParseAddrPort(a); r != j.Rank && (err != nil || at.Addr().Unmap().WithZone("") == j.local.Unmap().WithZone("")) {
			j.off.Share()
			return
		}
	}
}

func (j *joining) dropOffload(why string) {
	if j.off != nil {
		_ = j.off.Close()
		j.off, j.noBPF = nil, why
	}
}
