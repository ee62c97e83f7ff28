package lab

import (
	"fmt"
	"math"
	"slices"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/allcast/allcast/internal/offload/napi"
)

// lossFilters are the programs that drop and duplicate packets when they arrive (tc-BPF, direct action). Both are
// nil if the lab needs none.
//
// They drop single datagrams, as a wire would, not super-packets of many: the port at the other end of the cable
// segments super-packets (see segment). The receiver then gets single datagrams, as it would from a network card
// without GRO.
type lossFilters struct {
	host *ebpf.Program
	// toSwitch drops only packets that are addressed to the switch itself; nil without aggregators.
	toSwitch *ebpf.Program
}

func newLossFilters(c Config) (f lossFilters, err error) {
	if c.Loss == 0 && c.LossAll == 0 && c.Duplicate == 0 {
		return f, nil
	}
	if f.host, err = loadLoss("allcast_loss", c, hostLoss()); err == nil && c.Inc {
		f.toSwitch, err = loadLoss("allcast_loss_sw", c, switchLoss())
	}
	return f, err
}

func (f *lossFilters) close() {
	_, _ = f.host.Close(), f.toSwitch.Close() // the interfaces keep them
}

// loadLoss loads a program that starts by classifying a packet.
func loadLoss(name string, c Config, classify asm.Instructions) (*ebpf.Program, error) {
	datagram := max(c.Loss, c.LossAll)
	prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: name, Type: ebpf.SchedCLS, License: "GPL",
		Instructions: lossProgram(classify, float64(datagram), float64(c.LossAll), float64(c.Duplicate)),
	})
	return prog, annotate(err, "load the program that loses packets")
}

// Offsets into struct __sk_buff (linux/bpf.h), and into an Ethernet frame with IPv4.
const (
	skbMark    = 8
	skbIfindex = 40

	frameType  = 12
	frameProto = 14 + 9
	frameSrc   = 14 + 12
	frameDst   = 14 + 16

	tcOK   = 0 // TC_ACT_OK
	tcShot = 2 // TC_ACT_SHOT

	// ours marks the second copy of a datagram, which passes the filter again.
	ours = 0x616c6c63
)

// hostLoss classifies a packet that arrives at a host: multicast, or a datagram from an aggregator, or another one.
func hostLoss() asm.Instructions {
	return asm.Instructions{
		asm.LoadAbs(frameDst, asm.Byte),
		asm.And.Imm(asm.R0, 0xf0),
		asm.JEq.Imm(asm.R0, 0xe0, "multicast"),
		asm.LoadAbs(frameSrc, asm.Half),
		asm.JNE.Imm(asm.R0, aggregatorNet>>16, "other"),
		asm.LoadAbs(frameProto, asm.Byte),
		asm.JEq.Imm(asm.R0, unix.IPPROTO_UDP, "datagram"),
		asm.Ja.Label("other"),

		asm.LoadAbs(frameProto, asm.Byte).WithSymbol("multicast"),
		asm.JNE.Imm(asm.R0, unix.IPPROTO_UDP, "pass"),
		asm.Ja.Label("datagram"),
	}
}

// switchLoss classifies a packet that arrives at a switch. Packets to hosts and to groups only pass through, and
// background traffic has done its work when it arrives.
func switchLoss() asm.Instructions {
	return asm.Instructions{
		asm.LoadAbs(frameDst, asm.Half),
		asm.JEq.Imm(asm.R0, backgroundNet>>16, "pass"),
		asm.LoadAbs(frameDst, asm.Byte),
		asm.JEq.Imm(asm.R0, hostNet>>24, "pass"),
		asm.And.Imm(asm.R0, 0xf0),
		asm.JEq.Imm(asm.R0, 0xe0, "pass"),
		asm.LoadAbs(frameProto, asm.Byte),
		asm.JEq.Imm(asm.R0, unix.IPPROTO_UDP, "datagram"),
	}
}

// lossProgram drops a packet if a random number is below p * 2^32.
func lossProgram(classify asm.Instructions, datagram, other, duplicate float64) asm.Instructions {
	threshold := func(p float64) int64 { return int64(math.Round(p * (1 << 32))) }
	return slices.Concat(asm.Instructions{
		asm.Mov.Reg(asm.R6, asm.R1),
		asm.LoadMem(asm.R7, asm.R6, skbMark, asm.Word),
		asm.JEq.Imm(asm.R7, ours, "unmark"),
		asm.LoadAbs(frameType, asm.Half),
		asm.JNE.Imm(asm.R0, unix.ETH_P_IP, "pass"),
	}, classify, asm.Instructions{
		asm.LoadImm(asm.R8, threshold(other), asm.DWord).WithSymbol("other"),
		asm.FnGetPrandomU32.Call(),
		asm.JLT.Reg(asm.R0, asm.R8, "drop"),
		asm.Ja.Label("pass"),

		asm.LoadImm(asm.R8, threshold(datagram), asm.DWord).WithSymbol("datagram"),
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
	})
}

// lossy makes a port drop packets that arrive, and segments super-packets to a port that does.
func (b *builder) lossy(n *Node, i int) error {
	nl := b.nl[n.ID]
	if b.plan.Graph.IsHost(n.Ports[i].Peer) || b.loss.toSwitch != nil {
		if err := b.segment(n, i); err != nil {
			return fmt.Errorf("no super-packets: %w", err)
		}
	}
	prog := b.loss.toSwitch
	if n.Host {
		prog = b.loss.host
	}
	if prog == nil {
		return nil
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
		Fd: prog.FD(), Name: "allcast_lab_loss", DirectAction: true,
	}), "loss")
}

// segment makes a port send single datagrams instead of super-packets. TCP keeps its super-packets unless they may be
// lost: without them it would take more processor time than in a lab without loss.
func (b *builder) segment(n *Node, i int) error {
	if b.plan.Config.LossAll > 0 {
		// The kernel segments packets with more segments than the interface allows.
		return b.nl[n.ID].LinkSetGSOMaxSegs(b.link(n.ID, i), 1)
	}
	return inNamespace(b.plan.Namespace(n), func() error {
		return napi.Feature(n.Ports[i].Name, "tx-udp-segmentation", false)
	})
}
