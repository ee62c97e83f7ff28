//go:build verbs

package verbs_test

import (
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/allcast/allcast/internal/fabric"
	"github.com/allcast/allcast/internal/fabric/verbs"
)

// logged opens a device that logs its events.
func logged(t *testing.T) (*verbs.Device, *output) {
	t.Helper()
	log := &output{}
	d, err := verbs.Open("rxe0", 0, slog.New(slog.NewTextHandler(log, nil)))
	must(t, err)
	t.Cleanup(d.Close)
	return d, log
}

// posts hands a whole batch to the network, and does not wait until it completes.
func posts(t *testing.T, m *verbs.Multicast, b *fabric.Batch) {
	t.Helper()
	if n, err := m.Sender(0).Send(b); n != len(b.Headers) || err != nil {
		t.Fatalf("%d of %d datagrams were taken: %v", n, len(b.Headers), err)
	}
}

// completes waits until n datagrams have completed.
func completes(t *testing.T, m *verbs.Multicast, n uint64) {
	t.Helper()
	for late := time.Now().Add(20 * time.Second); m.Sender(0).Completed() < n; {
		if time.Now().After(late) {
			t.Fatalf("%d datagrams have completed, want %d", m.Sender(0).Completed(), n)
		}
		m.Sender(0).Await(20 * time.Millisecond)
	}
	if got := m.Sender(0).Completed(); got != n {
		t.Fatalf("%d datagrams have completed, want %d", got, n)
	}
}

// served receives until the test ends, as a receive worker does.
func served(t *testing.T, m *verbs.Multicast, s fabric.Sink) {
	t.Helper()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for m.Receiver(0).Receive(s) == nil {
		}
	}()
	t.Cleanup(func() {
		must(t, m.Close())
		<-ended
	})
}

// of assigns all datagrams of a batch to a communicator.
func of(comm uint32, b *fabric.Batch) *fabric.Batch {
	for i := range b.Headers {
		b.Headers[i].Comm = comm
	}
	return b
}

// Send posts batches while the device still has others. Each keeps its slots and its memory until it
// has completed, with one doorbell and one completion per batch.
func TestBatchesInFlight(t *testing.T) {
	dummyNet(t)
	a, _ := pair(t)
	from, to := multicastOn(t, a.dev, verbs.McastConfig{}), multicast(t, verbs.McastConfig{})
	op := fabric.OpKey{Seq: 1}
	mem := content(3*verbs.Batch*100, 1, 0)
	a.register(t, op, mem)
	if rc := from.Pause(0, 1); rc != 0 {
		t.Fatalf("the send queue cannot be paused: %d", rc)
	}
	want := 0
	for i := range 3 {
		b := batch(verbs.Batch, 100)
		for j := range b.Payloads {
			b.Payloads[j] = mem[(i*verbs.Batch+j)*100:][:100]
		}
		posts(t, from, b)
		want += verbs.Batch
	}
	a.Unregister(op)
	a.Settle()
	c := from.Counters(0)
	if n := from.Sender(0).Completed(); n != 0 || c.Completions != 0 {
		t.Errorf("%d datagrams completed while the device is paused; %+v", n, c)
	}
	if c.InFlight != 3 || c.Doorbells != 3 || c.Copied != 0 {
		t.Errorf("%+v: want three batches in flight, sent without a copy", c)
	}
	if _, ended, _ := a.Registrations(); ended != 0 {
		t.Error("memory was deregistered while the device may read it")
	}
	if rc := from.Resume(0, 1); rc != 0 {
		t.Fatalf("the send queue cannot be resumed: %d", rc)
	}
	posts(t, from, batch(verbs.Batch, 100))
	want += verbs.Batch
	completes(t, from, uint64(want))
	a.Settle()
	if _, ended, _ := a.Registrations(); ended != 1 {
		t.Error("unused memory is still registered")
	}
	got := &collect{keep: true}
	receive(t, to.Receiver(0), got, want)
	for i, p := range got.payload[:3*verbs.Batch] {
		if string(p) != string(mem[i*100:][:100]) {
			t.Fatalf("datagram %d arrived with other content", i)
		}
	}
	if c := from.Counters(0); c.InFlight != 4 || c.Doorbells != 4 || c.Completions != 4 {
		t.Errorf("%+v for four batches", c)
	}
}

// Without room, Send returns ErrBusy at once. Close completes all batches in flight.
func TestCloseInFlight(t *testing.T) {
	dummyNet(t)
	m := multicast(t, verbs.McastConfig{})
	if rc := m.Pause(0, 1); rc != 0 {
		t.Fatalf("the send queue cannot be paused: %d", rc)
	}
	for range 4 {
		posts(t, m, batch(verbs.Batch, 100))
	}
	if n, err := m.Sender(0).Send(batch(1, 100)); n != 0 || !errors.Is(err, fabric.ErrBusy) {
		t.Errorf("%d, %v: want ErrBusy", n, err)
	}
	m.Sender(0).Await(time.Millisecond)
	if n := m.Sender(0).Completed(); n != 0 {
		t.Errorf("%d datagrams completed while the device is paused", n)
	}
	must(t, m.Close())
	if n := m.Sender(0).Completed(); n != 4*verbs.Batch {
		t.Errorf("%d datagrams have completed after Close, want %d", n, 4*verbs.Batch)
	}
	if _, err := m.Sender(0).Send(batch(1, 100)); !errors.Is(err, fabric.ErrClosed) {
		t.Errorf("got %v", err)
	}
	m.Sender(0).Await(time.Hour) // returns at once
}

// failing opens a pair, with a batch that the device of one end refuses in the middle.
func failing(t *testing.T) (a *end, from, member *verbs.Multicast, bad *fabric.Batch, mend func()) {
	t.Helper()
	dummyNet(t)
	a, _ = pair(t)
	cfg := verbs.McastConfig{Derive: byName}
	from, member = multicastOn(t, a.dev, cfg), multicast(t, cfg)
	must(t, from.AddComm(77, "x"))
	must(t, member.AddComm(77, "x"))
	mem, err := a.Alloc(100)
	must(t, err)
	bad = of(77, batch(verbs.Batch, 100))
	bad.Payloads[verbs.Batch/2] = mem
	bad.Payloads[0] = mem[:0] // selects the region of the batch
	return a, from, member, bad, a.Spoil(mem)
}

// A failed send costs only its own batch: other communicators on the same completion queue continue, the
// queue pair is reset, and all batches complete.
func TestFailedSend(t *testing.T) {
	a, from, member, bad, mend := failing(t)
	heard := &collect{}
	served(t, from, heard)
	for range 2 {
		posts(t, from, of(1, batch(verbs.Batch, 100)))
	}
	posts(t, from, bad)
	posts(t, from, of(1, batch(verbs.Batch, 100)))
	completes(t, from, 4*verbs.Batch)
	a.log.waitFor(t, "works again")
	if c := from.Counters(0); c.Failures != 1 || c.Recoveries != 1 {
		t.Errorf("%+v: want one failure and one recovery", c)
	}
	receive(t, member.Receiver(0), &collect{}, 3*verbs.Batch+verbs.Batch/2)
	mend()
	for range 5 {
		must(t, send(from, bad))
		receive(t, member.Receiver(0), &collect{}, verbs.Batch)
	}
	completes(t, from, 9*verbs.Batch)
	if c := from.Counters(0); c.Failures != 1 {
		t.Errorf("%+v: want one failure", c)
	}
	// The queue pair also receives again.
	before := from.Counters(0).Received
	must(t, send(member, of(77, batch(10, 100))))
	for late := time.Now().Add(20 * time.Second); from.Counters(0).Received < before+10; {
		if time.Now().After(late) {
			t.Fatalf("%+v: want 10 more received", from.Counters(0))
		}
		from.Receiver(0).Wake()
	}
	t.Logf("%+v\n%s", from.Counters(0), a.log)
}

// A queue pair without a receive worker is reset as well, after a moment.
func TestFailedSendAlone(t *testing.T) {
	_, from, member, bad, mend := failing(t)
	posts(t, from, bad)
	completes(t, from, verbs.Batch)
	receive(t, member.Receiver(0), &collect{}, verbs.Batch/2)
	mend()
	must(t, send(from, bad))
	receive(t, member.Receiver(0), &collect{}, verbs.Batch)
	if c := from.Counters(0); c.Failures != 1 || c.Recoveries != 1 {
		t.Errorf("%+v: want one failure and one recovery", c)
	}
}

// A queue pair that cannot be reset is logged once, and every Send fails. Others continue.
func TestFailsForGood(t *testing.T) {
	a, from, member, bad, mend := failing(t)
	served(t, from, &collect{})
	find := a.dev.MisplacePort()
	posts(t, from, bad)
	completes(t, from, verbs.Batch)
	a.log.waitFor(t, "broken for good")
	mend()
	for range 3 {
		n, err := from.Sender(0).Send(bad)
		if n != 0 || err == nil || !strings.Contains(err.Error(), "not possible any more") {
			t.Errorf("%d, %v: want that it is not possible any more", n, err)
		}
		t.Log(err)
	}
	must(t, send(from, of(1, batch(verbs.Batch, 100))))
	receive(t, member.Receiver(0), &collect{}, verbs.Batch/2+verbs.Batch)
	completes(t, from, 2*verbs.Batch)
	if n := strings.Count(a.log.String(), "broken for good"); n != 1 {
		t.Errorf("it was reported %d times", n)
	}
	find()
	from.RemoveComm(77)
	must(t, from.AddComm(78, "y")) // uses another queue pair
	must(t, member.AddComm(78, "y"))
	must(t, send(from, of(78, batch(3, 100))))
	receive(t, member.Receiver(0), &collect{}, 3)
}

// A communicator may be removed while its datagrams are in flight, and while the job is closed.
func TestRemoveInFlight(t *testing.T) {
	dummyNet(t)
	m := multicast(t, verbs.McastConfig{Derive: byName})
	must(t, m.AddComm(77, "x"))
	if rc := m.Pause(0, 77); rc != 0 {
		t.Fatalf("the send queue cannot be paused: %d", rc)
	}
	for range 3 {
		posts(t, m, of(77, batch(verbs.Batch, 100)))
	}
	if n := m.Sender(0).Completed(); n != 0 {
		t.Errorf("%d datagrams completed while the device is paused", n)
	}
	m.RemoveComm(77)
	completes(t, m, 3*verbs.Batch)
	must(t, m.AddComm(77, "x"))
	posts(t, m, of(77, batch(verbs.Batch, 100)))
	completes(t, m, 4*verbs.Batch)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		m.RemoveComm(77)
	}()
	must(t, m.Close())
	<-ended
	m.RemoveComm(77)
	must(t, m.AddComm(78, "y")) // does nothing after Close
}

// Events of the device are logged in plain words, with device and port.
func TestPortEvents(t *testing.T) {
	dummyNet(t)
	_, log := logged(t)
	link, err := netlink.LinkByName("alone0")
	must(t, err)
	must(t, netlink.LinkSetDown(link))
	log.waitFor(t, `msg="RDMA device: the port is down: nothing is sent or received for now" device=rxe0 port=1`)
	must(t, netlink.LinkSetUp(link))
	log.waitFor(t, `msg="RDMA device: the port is up" device=rxe0 port=1`)
	address(t, "alone0", "10.9.0.99/24")
	log.waitFor(t, `msg="RDMA device: the port's GIDs have changed" device=rxe0 port=1`)
	own, err := netlink.ParseAddr("10.9.0.1/24")
	must(t, err)
	must(t, netlink.AddrDel(link, own))
	log.waitFor(t, `level=ERROR msg="RDMA device: the port has lost the job's GID`)
	t.Logf("%s", log)
}

// After an overflow of the completion queue, Send fails with the reason. Batches in flight complete.
func TestCompletionQueueFails(t *testing.T) {
	dummyNet(t)
	d, log := logged(t)
	m := multicastOn(t, d, verbs.McastConfig{})
	if rc := m.Overflow(0); rc != 0 {
		t.Fatalf("cannot post: %d", rc)
	}
	log.waitFor(t, "a completion queue failed")
	log.waitFor(t, "failed for good")
	for range 2 {
		_, err := m.Sender(0).Send(batch(1, 1))
		if err == nil || !strings.Contains(err.Error(), "a completion queue failed") {
			t.Errorf("got %v", err)
		}
	}
	m.Sender(0).Await(time.Hour) // returns at once
	completes(t, m, 0)
	t.Logf("%s", log)
}

// A multicast queue pair that the device reports as failed is reset. The peer of a failed RC queue pair
// is lost.
func TestQueuePairFails(t *testing.T) {
	dummyNet(t)
	a, b := pair(t)
	cfg := verbs.McastConfig{Derive: byName}
	from, member := multicastOn(t, a.dev, cfg), multicast(t, cfg)
	must(t, from.AddComm(77, "x"))
	must(t, member.AddComm(77, "x"))
	served(t, from, &collect{})
	from.FailQueuePair(0, 77)
	a.log.waitFor(t, "works again")
	must(t, send(from, of(77, batch(10, 100))))
	receive(t, member.Receiver(0), &collect{}, 10)
	a.Send(1, []byte("hello"))
	b.ev.wait(t, "message 0 5")
	a.FailQueuePair(1)
	a.ev.wait(t, "lost 1: peer 1, SUCCESS, true")
	t.Logf("%s", a.log)
}

// After a failure of the device, all calls fail with the reason.
func TestDeviceFails(t *testing.T) {
	dummyNet(t)
	a, b := pair(t)
	m := multicastOn(t, a.dev, verbs.McastConfig{})
	a.Send(1, []byte("hello"))
	b.ev.wait(t, "message 0 5")
	a.dev.Fail()
	a.ev.wait(t, "lost 1: peer 1, SUCCESS, true")
	const want = "the device failed"
	if _, err := m.Sender(0).Send(batch(1, 1)); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("Send: %v", err)
	}
	for range 2 {
		if err := m.Receiver(0).Receive(&collect{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Receive: %v", err)
		}
	}
}
