package doctor

import (
	"encoding/json"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/allcast/allcast/cmd/allcast/internal/cli"
	"github.com/allcast/allcast/cmd/allcast/internal/clitest"
	"github.com/allcast/allcast/cmd/allcast/internal/sshlab"
	"github.com/allcast/allcast/internal/testenv"
)

// Offsets into struct __sk_buff (linux/bpf.h), and into an Ethernet frame with IPv4 without options.
const (
	skbLen     = 0
	frameProto = 14 + 9
	frameDst   = 14 + 16
	tcpPort    = 14 + 20 + 2
	tcpFlags   = 14 + 20 + 13
)

// classify is a program that jumps to "drop" for some IPv4 packets that arrive at a host.
type classify asm.Instructions

var (
	// cutMulticast drops multicast datagrams.
	cutMulticast = classify{
		asm.LoadAbs(frameProto, asm.Byte), asm.JNE.Imm(asm.R0, unix.IPPROTO_UDP, "pass"),
		asm.LoadAbs(frameDst, asm.Byte), asm.And.Imm(asm.R0, 0xf0), asm.JEq.Imm(asm.R0, 0xe0, "drop"),
	}
	// smallMTU drops datagrams that are larger than an MTU of 1500 bytes.
	smallMTU = classify{
		asm.LoadAbs(frameProto, asm.Byte), asm.JNE.Imm(asm.R0, unix.IPPROTO_UDP, "pass"),
		asm.LoadMem(asm.R7, asm.R6, skbLen, asm.Word), asm.JGT.Imm(asm.R7, 1514, "drop"),
	}
	// noUDP is a firewall that drops all datagrams.
	noUDP = classify{
		asm.LoadAbs(frameProto, asm.Byte), asm.JEq.Imm(asm.R0, unix.IPPROTO_UDP, "drop"),
	}
	// onlySSH is a firewall that accepts connections to sshd only.
	onlySSH = classify{
		asm.LoadAbs(frameProto, asm.Byte), asm.JNE.Imm(asm.R0, unix.IPPROTO_TCP, "pass"),
		asm.LoadAbs(tcpPort, asm.Half), asm.JEq.Imm(asm.R0, 22, "pass"),
		asm.LoadAbs(tcpFlags, asm.Byte), asm.And.Imm(asm.R0, 0x12), asm.JEq.Imm(asm.R0, 0x02, "drop"), // SYN without ACK
	}
	// loseMulticast drops 2 % of multicast datagrams.
	loseMulticast = classify{
		asm.LoadAbs(frameDst, asm.Byte), asm.And.Imm(asm.R0, 0xf0), asm.JNE.Imm(asm.R0, 0xe0, "pass"),
		asm.FnGetPrandomU32.Call(), asm.LoadImm(asm.R8, 1<<32/50, asm.DWord), asm.JLT.Reg(asm.R0, asm.R8, "drop"),
	}
)

// inject makes a host drop packets that arrive, until the function that it returns is called.
func inject(t *testing.T, l *sshlab.Lab, host int, c classify) (remove func()) {
	t.Helper()
	program := append(asm.Instructions{
		asm.Mov.Reg(asm.R6, asm.R1),
		asm.LoadAbs(12, asm.Half), asm.JNE.Imm(asm.R0, unix.ETH_P_IP, "pass"),
	}, c...)
	program = append(program,
		asm.Mov.Imm(asm.R0, 0).WithSymbol("pass"), asm.Return(),
		asm.Mov.Imm(asm.R0, 2).WithSymbol("drop"), asm.Return()) // TC_ACT_SHOT
	prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.SchedCLS, License: "GPL", Instructions: program})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = prog.Close() }()
	ns, err := netns.GetFromName(fmt.Sprintf("%s-host%d", l.Name, host))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = ns.Close() }()
	nl, err := netlink.NewHandleAt(ns)
	if err != nil {
		t.Fatal(err)
	}
	link, err := nl.LinkByName("eth0")
	if err != nil {
		t.Fatal(err)
	}
	qdisc := &netlink.Clsact{QdiscAttrs: netlink.QdiscAttrs{
		LinkIndex: link.Attrs().Index, Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_CLSACT,
	}}
	if err := nl.QdiscReplace(qdisc); err != nil {
		t.Fatal(err)
	}
	err = nl.FilterReplace(&netlink.BpfFilter{
		FilterAttrs: netlink.FilterAttrs{
			LinkIndex: link.Attrs().Index, Parent: netlink.HANDLE_MIN_INGRESS, Handle: 1, Protocol: unix.ETH_P_ALL, Priority: 1,
		},
		Fd: prog.FD(), Name: "fault", DirectAction: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	return func() {
		defer nl.Close()
		if err := nl.QdiscDel(qdisc); err != nil {
			t.Error(err)
		}
	}
}

// networkVar asks for the longer tests.
const networkVar = "ALLCAST_TEST_NETWORK"

// with prepares a check of host 0 with host 1.
func with(t *testing.T, l *sshlab.Lab, flags ...string) *exec.Cmd {
	t.Helper()
	return l.Command(t, "host0", append([]string{
		"doctor", "--json", "--with", "h1", "--ssh", l.SSH(), "--rate", "10mbit",
	}, flags...)...)
}

// findingsOf returns the findings of a check by name. Each problem must have a fix.
func findingsOf(t *testing.T, o clitest.Outcome) map[string]finding {
	t.Helper()
	all := map[string]finding{}
	for line := range strings.Lines(o.Stdout) {
		var f finding
		if err := json.Unmarshal([]byte(line), &f); err != nil {
			t.Fatalf("%q: %v\n%s", line, err, o.Stderr)
		}
		if (f.Fix == "") != (f.Status == statusOK) {
			t.Errorf("%+v", f)
		}
		all[f.Check] = f
	}
	t.Logf("status %d\n%s%s", o.Status, o.Stdout, o.Stderr)
	return all
}

// expect checks a finding.
func expect(t *testing.T, all map[string]finding, check, status string, details ...string) {
	t.Helper()
	f := all[check]
	if f.Status != status {
		t.Errorf("%s: %+v, want %s", check, f, status)
	}
	for _, d := range details {
		if !strings.Contains(f.Detail+" "+f.Fix, d) {
			t.Errorf("%s: %+v, want %q", check, f, d)
		}
	}
}

// Each fault of a network is found and comes with its fix, and a network without faults has none.
func TestNetwork(t *testing.T) {
	l := sshlab.Start(t, 3)
	const lossCheck = "loss at 10mbit" // a rate at which a busy machine loses nothing
	t.Run("sound", func(t *testing.T) {
		o := clitest.Finish(t, l.Command(t, "host0", "doctor", "--json", "--ssh", l.SSH(), "--rate", "10mbit",
			"--with", "h1", "h2"))
		all := findingsOf(t, o)
		if o.Status != cli.StatusOK {
			t.Errorf("status %d", o.Status)
		}
		expect(t, all, "machines", statusOK, "3: h1 ("+l.Addr(1)+", eth0, MTU 9000); h2", "this machine ("+l.Addr(0))
		expect(t, all, "multicast", statusOK)
		expect(t, all, "multicast size", statusOK, "8972")
		expect(t, all, "path MTU", statusOK, "9000")
		expect(t, all, "firewall, TCP", statusOK)
		expect(t, all, "firewall, UDP", statusOK)
		expect(t, all, "IGMP version", statusOK, "V3")
		expect(t, all, "IGMP querier", statusWarn, "--long", "querier")
		expect(t, all, lossCheck, statusOK)
		expect(t, all, "reordering", statusOK)
	})
	for _, c := range []struct {
		name   string
		host   int
		fault  classify
		status int
		check  string
		want   string
		texts  []string
		slow   bool
	}{
		{
			"multicast cut off in one direction", 1, cutMulticast, cli.StatusFailed, "multicast", statusMissing,
			[]string{
				"this machine to h1; the other direction works; unicast UDP works", "on h1, accept UDP to 239.192.0.0/14",
			},
			false,
		},
		{
			"an MTU hole", 0, smallMTU, cli.StatusFailed, "multicast size", statusMissing,
			[]string{"at most 1472 bytes arrive", "h1 to this machine", "mtu 1500"},
			false,
		},
		{
			"a firewall that drops UDP", 1, noUDP, cli.StatusFailed, "firewall, UDP", statusMissing,
			[]string{"this machine to h1", "let the firewall of h1 accept UDP"},
			true,
		},
		{
			"a firewall on the machine of rank 0", 1, onlySSH, cli.StatusFailed, "meeting rank 0", statusMissing,
			[]string{"could not reach rank 0", "let a firewall on rank 0's machine accept TCP"},
			true,
		},
		{
			"a firewall on another machine", 0, onlySSH, cli.StatusFailed, "firewall, TCP", statusMissing,
			[]string{"h1 to this machine", "let the firewall of this machine accept TCP"},
			true,
		},
		{
			"loss", 0, loseMulticast, cli.StatusOK, lossCheck, statusWarn,
			[]string{"from h1 to this machine", "ethtool -S"},
			false,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.slow {
				testenv.NeedVar(t, networkVar, "\"make test-network\" runs it")
			}
			defer inject(t, l, c.host, c.fault)()
			o := clitest.Finish(t, with(t, l))
			all := findingsOf(t, o)
			if o.Status != c.status {
				t.Errorf("status %d, want %d", o.Status, c.status)
			}
			expect(t, all, c.check, c.want, c.texts...)
			for check, f := range all {
				if f.Status == statusMissing && c.want != statusMissing {
					t.Errorf("%s: %+v", check, f)
				}
			}
		})
	}
	t.Run("multicast stops", func(t *testing.T) { testStop(t, l) })
	t.Run("a querier", func(t *testing.T) { testQuerier(t, l) })
	t.Run("a job", func(t *testing.T) {
		testenv.NeedVar(t, networkVar, "\"make test-network\" runs it")
		o := clitest.Finish(t, l.Command(t, "host0", "run", "--hosts", "h0:2,h1:1", "--ssh", l.SSH(), "--", sshlab.Self(t),
			"doctor"))
		if o.Status != cli.StatusOK || !strings.Contains(o.Stdout, "every machine hears every other") {
			t.Errorf("status %d\n%s%s", o.Status, o.Stdout, o.Stderr)
		}
	})
}

// watched starts a check with --long and waits until it watches. The check ends by itself long before its time if
// multicast stops.
func watched(t *testing.T, l *sshlab.Lab, time string) (finish func() clitest.Outcome) {
	t.Helper()
	cmd := with(t, l, "--long", "--long-for", time)
	var stdout strings.Builder
	cmd.Stdout = &stdout
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	text, b := "", make([]byte, 1024)
	for !strings.Contains(text, "whether multicast keeps arriving") {
		n, err := stderr.Read(b)
		if err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		text += string(b[:n])
	}
	return func() clitest.Outcome {
		rest, _ := io.ReadAll(stderr)
		_ = cmd.Wait()
		return clitest.Outcome{Status: cmd.ProcessState.ExitCode(), Stdout: stdout.String(), Stderr: text + string(rest)}
	}
}

// Multicast that stops after a while, as behind a switch that forgets a group.
func testStop(t *testing.T, l *sshlab.Lab) {
	t.Helper()
	finish := watched(t, l, "30s")
	defer inject(t, l, 1, cutMulticast)()
	o := finish()
	all := findingsOf(t, o)
	if o.Status != cli.StatusFailed {
		t.Errorf("status %d", o.Status)
	}
	expect(t, all, "multicast", statusOK)
	expect(t, all, "multicast over time", statusMissing, "this machine to h1", "querier")
}

// The check sees a querier's query on each machine that it reaches.
func testQuerier(t *testing.T, l *sshlab.Lab) {
	t.Helper()
	testenv.NeedVar(t, networkVar, "\"make test-network\" runs it")
	finish := watched(t, l, "20s")
	for host := range 2 {
		sendQuery(t, l, host)
	}
	o := finish()
	all := findingsOf(t, o)
	if o.Status != cli.StatusOK {
		t.Errorf("status %d", o.Status)
	}
	expect(t, all, "IGMP querier", statusOK, "this machine sees", "h1 sees")
	expect(t, all, "multicast over time", statusOK, "still arrives after 20s")
}

// sendQuery sends a general query (RFC 3376, section 4.1) from the switch to a host. A process in the switch's
// namespace sends it, because a thread of the test cannot leave a namespace safely.
func sendQuery(t *testing.T, l *sshlab.Lab, host int) {
	t.Helper()
	sshlab.Must(t, l.Command(t, "leaf0", "query", fmt.Sprint("host", host)))
}
