package ip

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/allcast/allcast/internal/fabric"
	"github.com/allcast/allcast/internal/wire"
)

// queueCounter counts the sends that the queue of the interface has dropped.
type queueCounter struct {
	fabric.Sender
	full atomic.Int64
}

func (c *queueCounter) Send(b *fabric.Batch) (int, error) {
	n, err := c.Sender.Send(b)
	if errors.Is(err, fabric.ErrQueueFull) {
		c.full.Add(1)
	}
	return n, err
}

// A sender notices what the queue of its own interface drops, and repeats it: the receiver misses nothing.
func TestMulticastQueueFull(t *testing.T) {
	if os.Getenv(mcastNamespaceVar) != "queue" {
		inNamespace(t, "queue", 1, "^TestMulticastQueueFull$", mcastVeth+
			" && tc qdisc add dev allcast0 root tbf rate 20mbit burst 128kb limit 128kb")
		return
	}
	const chunks = 600
	groups := mcastNextGroups(1, false)
	var ends []*Multicast
	for _, name := range []string{"allcast0", "allcast1"} {
		ifc, err := net.InterfaceByName(name)
		if err != nil {
			t.Fatal(err)
		}
		local := map[string]string{"allcast0": "192.0.2.1", "allcast1": "192.0.2.2"}[name]
		ends = append(ends, mcastVariants[0].open(t, McastConfig{
			Interface: ifc, Local: netip.MustParseAddr(local), Groups: groups,
		}))
	}
	caps := ends[0].Capabilities()
	data := mcastData(caps.Chunk, chunks)
	sink := newMcastSink(caps.Chunk, chunks)
	tx := &queueCounter{Sender: ends[0].Sender(0)}
	sent := make(chan error, 1)
	go func() {
		for psn := 0; psn < chunks; psn += caps.Batch {
			var b fabric.Batch
			for i := psn; i < min(psn+caps.Batch, chunks); i++ {
				b.Headers = append(b.Headers, wire.Header{Token: mcastToken, Comm: 3, Imm: uint32(i)})
				b.Payloads = append(b.Payloads, data[i*caps.Chunk:][:caps.Chunk])
			}
			if err := fabric.SendAll(tx, &b, time.Minute); err != nil {
				sent <- err
				return
			}
		}
		sent <- nil
	}()
	rx := ends[1].Receiver(0)
	var late atomic.Bool
	defer time.AfterFunc(30*time.Second, func() { late.Store(true); rx.Wake() }).Stop()
	for sink.direct+sink.copied < chunks && !late.Load() {
		if err := rx.Receive(sink); err != nil {
			t.Fatal(err)
		}
	}
	if err := <-sent; err != nil {
		t.Error(err)
	}
	if got := sink.direct + sink.copied; got != chunks || tx.full.Load() == 0 {
		t.Errorf("%d of %d chunks arrived, %d sends met a full queue", got, chunks, tx.full.Load())
	}
	if st := rx.Stats(); st.Dropped != 0 {
		t.Errorf("%+v", st)
	}
	mcastSame(t, sink.buf, data)
}

// The ICMP errors that earlier datagrams caused fail no later one.
func TestReports(t *testing.T) {
	closed, err := net.ListenPacket("udp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	to := closed.LocalAddr().(*net.UDPAddr).AddrPort()
	_ = closed.Close()
	fd, err := udpSocket(false, func(fd int) error {
		return udpSetOptions(fd, udpOption{"IP_RECVERR", unix.IPPROTO_IP, unix.IP_RECVERR, 1})
	})
	if err != nil {
		t.Fatal(err)
	}
	s := &rawSocket{fd: fd}
	t.Cleanup(func() { _ = s.free() })
	name := newUDPName(&mcastPlan{}, to)
	b := []byte("x")
	iov := unix.Iovec{Base: unsafe.SliceData(b)}
	iov.SetLen(len(b))
	msg := unix.Msghdr{Name: name.pointer(), Namelen: name.size, Iov: &iov}
	msg.SetIovlen(1)
	raw := func() error {
		return unix.Sendto(fd, b, 0, &unix.SockaddrInet4{Addr: to.Addr().As4(), Port: int(to.Port())})
	}
	if err := raw(); err != nil {
		t.Fatal(err)
	}
	if err := raw(); !errors.Is(err, syscall.ECONNREFUSED) { // on loopback, the report is there at once
		t.Fatal("there was no report: ", err)
	}
	for range 100 {
		if err := s.send(&msg); err != nil {
			t.Fatal(err)
		}
	}
	DropReports(uintptr(fd))
	if n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLPRI}}, 0); n != 0 || err != nil {
		// The last report may have come after all of them were read; its error is due, but none is queued.
		if _, _, _, _, err := unix.Recvmsg(fd, nil, nil, unix.MSG_ERRQUEUE|unix.MSG_DONTWAIT); !errors.Is(err, unix.EAGAIN) {
			t.Error("reports are left: ", err)
		}
	}
}
