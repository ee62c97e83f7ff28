package ip

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"net/netip"
	"unsafe"

	"golang.org/x/sys/unix"
)

// udpTestWait is how long a datagram may take from one socket to another on this machine, in
// milliseconds. It takes microseconds, unless the machine starts a hundred ranks at the same time.
const udpTestWait = 1000

// udpTest is the result of a self-test.
type udpTest struct {
	gso, gro      string // reasons why GSO and GRO are off; empty: on
	single, batch int    // bytes that the kernel charges a queue per chunk, alone and in a super-packet
}

// charge is the largest charge per chunk: a root that is short of credit sends single datagrams. A
// network card uses other buffers than the local sockets of the test.
func (t udpTest) charge(p *mcastPlan) int {
	c := max(t.single, t.batch)
	if !p.loopback() {
		c = max(c, FrameCharge(p.Chunk+p.head+udpHeader+mcastIPHeader(p.v6)))
	}
	return c
}

// udpProbe is a sending and a receiving socket for the self-test. It uses the first group with another
// port, and a TTL of 0: the kernel delivers such a datagram to local members of the group, and never
// sends it to the network.
type udpProbe struct {
	p       *mcastPlan
	tx, rx  int
	to      unix.Sockaddr
	out, in []byte
}

func udpSelfTest(p *mcastPlan) (udpTest, error) {
	alone := *p
	alone.CommGroup = nil // the test's socket is bound to a group
	p = &alone
	t := &udpProbe{p: p, out: make([]byte, mcastStage), in: make([]byte, mcastStage)}
	rand.Read(t.out) // datagrams differ from each other, and from those of other self-tests
	var err error
	if t.tx, _, err = udpSendSocket(p, 0); err != nil {
		return udpTest{}, err
	}
	defer func() { _ = unix.Close(t.tx) }()
	// With port 0 and without SO_REUSEADDR, the kernel picks a port that no other socket uses. Other
	// ranks may test at the same time.
	t.rx, err = udpReceiveSocket(p, netip.AddrPortFrom(p.Groups[0].Addr(), 0), func(fd int) error {
		_, _, err := udpSetBuffer(fd, p.ReceiveBuffer)
		return err
	})
	if err != nil {
		return udpTest{}, err
	}
	defer func() { _ = unix.Close(t.rx) }()
	name, err := udpSockname(t.rx)
	if err != nil {
		return udpTest{}, err
	}
	t.to = udpSockaddr(p, name)
	return t.run()
}

// run tries a single datagram, which must work, and then GSO and GRO, which may be off.
func (t *udpProbe) run() (res udpTest, err error) {
	if res.single, err = t.exchange(1, false); err != nil {
		return res, fmt.Errorf("multicast does not work on %s: %w", t.p.Interface.Name, err)
	}
	batch := t.p.batch()
	switch {
	case t.p.PlainSockets:
		res.gso, res.gro = mcastPlain, mcastPlain
	case batch == 1:
		res.gso, res.gro = "no two chunks fit a super-packet", "no two chunks fit a super-packet"
	default:
		if _, err := t.exchange(batch, false); err != nil {
			res.gso, res.gro = err.Error(), "it cannot be tested without GSO"
		} else if res.batch, err = t.tryGRO(batch); err != nil {
			res.gro = err.Error()
		}
	}
	return res, nil
}

// tryGRO receives whole super-packets of all sizes, and returns the largest charge per chunk: the kernel
// rounds up, so any size may have it.
func (t *udpProbe) tryGRO(batch int) (charge int, err error) {
	if err := udpSetOptions(t.rx, udpGROOn); err != nil {
		return 0, err
	}
	for n := 2; n <= batch; n++ {
		c, err := t.exchange(n, true)
		if err != nil {
			return 0, err
		}
		charge = max(charge, c)
	}
	return charge, nil
}

// exchange sends n datagrams in one message, and receives them as a whole or one by one. It checks
// their content, and returns the charge of the queue per datagram before it was read.
func (t *udpProbe) exchange(n int, whole bool) (int, error) {
	size := t.p.head + t.p.Chunk
	total := n * size
	if n > 1 && t.p.Chunk > 1 {
		total-- // a shorter last datagram shows where the kernel cuts
	}
	before, _, _ := udpMemInfo(t.rx) // 0 after an error
	if err := t.send(size, total); err != nil {
		return 0, err
	}
	charge := 0
	for got := 0; got < total; {
		if err := t.await(); err != nil {
			return 0, err
		}
		if now, _, err := udpMemInfo(t.rx); got == 0 && err == nil {
			charge = int(now - before)
		}
		k, cut, err := t.receive()
		if err != nil {
			return 0, err
		}
		if err := t.check(t.out[got:total], k, cut, size, whole); err != nil {
			return 0, err
		}
		got += k
	}
	if charge <= 0 {
		charge = FrameCharge(size) * n // kernels before 4.12 do not report it
	}
	if !whole {
		n = 1 // the queue may have held any number of them
	}
	return (charge + n - 1) / n, nil
}

// send sends a message that the kernel cuts into datagrams. Like receive, it never blocks, so no signal
// interrupts it.
func (t *udpProbe) send(size, total int) error {
	var control []byte
	if total > size {
		cut := newUDPSegment(size)
		control = unsafe.Slice((*byte)(unsafe.Pointer(&cut)), unsafe.Sizeof(cut))
	}
	if _, err := unix.SendmsgN(t.tx, t.out[:total], control, t.to, 0); err != nil {
		return fmt.Errorf("send to %v: %w%s", t.p.Groups[0].Addr(), err, udpAdvice(err))
	}
	return nil
}

func (t *udpProbe) await() error {
	fds := []unix.PollFd{{Fd: int32(t.rx), Events: unix.POLLIN}}
	for {
		n, err := unix.Poll(fds, udpTestWait)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return fmt.Errorf("poll: %w", err)
		case n == 0:
			return fmt.Errorf("datagrams to %v do not come back to this machine; check whether a firewall drops "+
				"them (nft list ruleset)", t.p.Groups[0].Addr())
		default:
			return nil
		}
	}
}

func (t *udpProbe) receive() (n, cut int, err error) {
	var control udpGRO
	room := unsafe.Slice((*byte)(unsafe.Pointer(&control)), unsafe.Sizeof(control))
	n, size, _, _, err := unix.Recvmsg(t.rx, t.in, room, 0)
	if err != nil {
		return 0, 0, fmt.Errorf("receive: %w", err)
	}
	return n, control.segment(size), nil
}

func (t *udpProbe) check(sent []byte, k, cut, size int, whole bool) error {
	want := min(size, len(sent))
	if whole {
		want = len(sent)
	}
	switch {
	case k == want:
	case whole && k == size:
		return errors.New("a super-packet arrives in parts")
	default:
		return fmt.Errorf("the self-test sent %d bytes and received %d", want, k)
	}
	if whole && cut != size {
		return fmt.Errorf("the kernel cuts a super-packet at %d bytes, not %d", cut, size)
	}
	if !bytes.Equal(t.in[:k], sent[:k]) {
		return errors.New("the self-test received other bytes than it sent")
	}
	return nil
}
