package lab

import (
	"fmt"
	"math"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// newLossFilter loads the program that drops and duplicates packets that arrive at hosts (tc-BPF,
// direct action). It returns nil if the lab needs none.
//
// It drops single datagrams, as a wire would, not super-packets of many: the leaf's port to a
// host with a filter segments super-packets (see lossy). The host then receives single
// datagrams, as it would from a network card without GRO.
func newLossFilter(c Config) (*ebpf.Program, error) {
	if c.Loss == 0 && c.LossAll == 0 && c.Duplicate == 0 {
		return nil, nil //nolint:nilnil // a network without losses needs no filter
	}
	prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "allcast_lab_loss", Type: ebpf.SchedCLS, License: "GPL",
		Instructions: lossProgram(max(float64(c.Loss), float64(c.LossAll)), float64(c.LossAll), float64(c.Duplicate)),
	})
	return prog, annotate(err, "load the program that loses packets")
}

// Offsets into struct __sk_buff (linux/bpf.h), and into an Ethernet frame with IPv4.
const (
	skbMark    = 8
	skbIfindex = 40

	frameType  = 12
	frameProto = 14 + 9
	frameDst   = 14 + 16

	tcOK   = 0 // TC_ACT_OK
	tcShot = 2 // TC_ACT_SHOT

	// ours marks the second copy of a datagram, which passes the filter again.
	ours = 0x616c6c63
)

// lossProgram drops a packet if a random number is below p * 2^32.
func lossProgram(mcast, other, duplicate float64) asm.Instructions {
	threshold := func(p float64) int64 { return int64(math.Round(p * (1 << 32))) }
	return asm.Instructions{
		asm.Mov.Reg(asm.R6, asm.R1),
		asm.LoadMem(asm.R7, asm.R6, skbMark, asm.Word),
		asm.JEq.Imm(asm.R7, ours, "unmark"),
		asm.LoadAbs(frameType, asm.Half),
		asm.JNE.Imm(asm.R0, unix.ETH_P_IP, "pass"),
		asm.LoadAbs(frameDst, asm.Byte),
		asm.And.Imm(asm.R0, 0xf0),
		asm.JEq.Imm(asm.R0, 0xe0, "multicast"),
		asm.LoadImm(asm.R8, threshold(other), asm.DWord),
		asm.FnGetPrandomU32.Call(),
		asm.JLT.Reg(asm.R0, asm.R8, "drop"),
		asm.Ja.Label("pass"),

		asm.LoadAbs(frameProto, asm.Byte).WithSymbol("multicast"),
		asm.JNE.Imm(asm.R0, unix.IPPROTO_UDP, "pass"),
		asm.LoadImm(asm.R8, threshold(mcast), asm.DWord),
		asm.LoadImm(asm.R9, threshold(duplicate), asm.DWord),
		asm.FnGetPrandomU32.Call(),
		asm.JLT.Reg(asm.R0, asm.R8, "drop"),
		asm.FnGetPrandomU32.Call(),
		asm.JGE.Reg(asm.R0, asm.R9, "pass"),
		asm.Mov.Imm(asm.R1, ours),
		asm.StoreMem(asm.R6, skbMark, asm.R1, asm.Word),
		asm.Mov.Reg(asm.R1, asm.R6),
		asm.LoadMem(asm.R2, asm.R6, skbIfindex, asm.Word),
		asm.Mov.Imm(asm.R3, 1), // BPF_F_INGRESS
		asm.FnCloneRedirect.Call(),

		asm.Mov.Imm(asm.R1, 0).WithSymbol("unmark"),
		asm.StoreMem(asm.R6, skbMark, asm.R1, asm.Word),
		asm.Mov.Imm(asm.R0, tcOK).WithSymbol("pass"),
		asm.Return(),
		asm.Mov.Imm(asm.R0, tcShot).WithSymbol("drop"),
		asm.Return(),
	}
}

// lossy makes the cable between a host and its leaf lossy, at the port's end.
func (b *builder) lossy(n *Node, i int) error {
	nl, link := b.nl[n.ID], b.link(n.ID, i)
	if !n.Host {
		if !b.plan.Graph.IsHost(n.Ports[i].Peer) {
			return nil
		}
		// The kernel segments packets with more segments than the interface allows.
		return annotate(nl.LinkSetGSOMaxSegs(link, 1), "no super-packets")
	}
	index := b.index[n.ID][i]
	err := nl.QdiscReplace(&netlink.Clsact{QdiscAttrs: netlink.QdiscAttrs{
		LinkIndex: index, Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_CLSACT,
	}})
	if err != nil {
		return fmt.Errorf("loss: %w", err)
	}
	return annotate(nl.FilterReplace(&netlink.BpfFilter{
		FilterAttrs: netlink.FilterAttrs{
			LinkIndex: index, Parent: netlink.HANDLE_MIN_INGRESS, Handle: 1, Protocol: unix.ETH_P_ALL, Priority: 1,
		},
		Fd: b.loss.FD(), Name: "allcast_lab_loss", DirectAction: true,
	}), "loss")
}
