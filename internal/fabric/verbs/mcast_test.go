//go:build verbs

package verbs_test

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/allcast/allcast/internal/fabric"
	"github.com/allcast/allcast/internal/fabric/verbs"
	"github.com/allcast/allcast/internal/wire"
)

func open(t *testing.T) *verbs.Device {
	t.Helper()
	d, err := verbs.Open("rxe0", 0, nil)
	must(t, err)
	t.Cleanup(d.Close)
	return d
}

func multicast(t *testing.T, cfg verbs.McastConfig) *verbs.Multicast {
	t.Helper()
	return multicastOn(t, open(t), cfg)
}

func multicastOn(t *testing.T, d *verbs.Device, cfg verbs.McastConfig) *verbs.Multicast {
	t.Helper()
	cfg.Groups = []netip.Addr{netip.MustParseAddr("239.192.7.7")}
	cfg.QKey = 0x1234567
	m, err := verbs.OpenMulticast(d, cfg)
	must(t, err)
	// A Receive that blocks for too long returns, and the test fails.
	late := time.AfterFunc(2*patience, m.Receiver(0).Wake)
	t.Cleanup(func() {
		late.Stop()
		must(t, m.Close())
	})
	return m
}

// patience is how long tests wait for datagrams.
const patience = 30 * time.Second

// byName gives communicators groups by the first byte of their names.
func byName(comm string, sub int) netip.Addr {
	return netip.AddrFrom4([4]byte{239, 192, comm[0], byte(sub)})
}

// collect is a sink that counts datagrams, and with keep copies them.
type collect struct {
	heads   []wire.Header
	payload [][]byte
	n       int
	keep    bool
}

func (c *collect) Expect([][]byte) int       { return 0 }
func (c *collect) Arrived([]wire.Header) int { return 0 }
func (c *collect) Idle()                     {}

func (c *collect) Chunk(h wire.Header, p []byte) {
	c.n++
	if c.keep {
		c.heads, c.payload = append(c.heads, h), append(c.payload, bytes.Clone(p))
	}
}

// batch makes datagrams of n bytes, the last one shorter.
func batch(count, n int) *fabric.Batch {
	b := &fabric.Batch{}
	for i := range count {
		size := n
		if i == count-1 {
			size = n / 2
		}
		b.Headers = append(b.Headers, wire.Header{
			Token: 1<<63 + uint64(i), Comm: 77, Imm: 0xfedc0000 + uint32(i), Sum: uint32(i),
		})
		b.Payloads = append(b.Payloads, content(size, i, 0))
	}
	return b
}

// send sends a batch, and waits until it has completed.
func send(m *verbs.Multicast, b *fabric.Batch) error {
	return fabric.SendAll(m.Sender(0), b, patience)
}

// receive waits until a sink has n datagrams.
func receive(t *testing.T, rx fabric.Receiver, s *collect, n int) {
	t.Helper()
	for begin := time.Now(); s.n < n; {
		must(t, rx.Receive(s))
		if s.n < n && time.Since(begin) > patience {
			t.Fatalf("%d datagrams arrived, want %d", s.n, n)
		}
	}
}

// Datagrams arrive unchanged, with headers and immediates, and not at the sender. A batch takes one
// doorbell and one completion.
func TestDatagrams(t *testing.T) {
	dummyNet(t)
	for _, sums := range []bool{false, true} {
		t.Run(fmt.Sprintf("sums=%v", sums), func(t *testing.T) {
			cfg := verbs.McastConfig{Sums: sums}
			must(t, exchange(multicast(t, cfg), multicast(t, cfg), sums))
		})
	}
}

// rdma_cm, which InfiniBand needs, can join groups on Soft-RoCE as well. The test uses another process,
// because the library keeps the device open.
func TestJoinThroughCM(t *testing.T) {
	dummyNet(t)
	for _, p := range start(t, 1, "", "cm") {
		if err := p.Wait(); err != nil {
			t.Errorf("%v: %s%s", err, &p.out, &p.err)
		}
		t.Logf("%s", &p.out)
	}
}

// throughCM runs in that process. It also loses a group, which the keeper then joins again.
func throughCM() error {
	log := &output{}
	d, err := verbs.Open("", 0, slog.New(slog.NewTextHandler(log, nil)))
	if err != nil {
		return err
	}
	var ends [2]*verbs.Multicast
	for i := range ends {
		cfg := verbs.McastConfig{Groups: []netip.Addr{netip.MustParseAddr("239.192.7.7")}, CM: true}
		if ends[i], err = verbs.OpenMulticast(d, cfg); err != nil {
			return err
		}
	}
	if err := exchange(ends[0], ends[1], false); err != nil {
		return err
	}
	ends[1].LoseGroup(0)
	for late := time.After(patience); ; {
		s, more := log.look()
		if strings.Contains(s, "a multicast group was joined again") {
			break
		}
		select {
		case <-more:
		case <-late:
			return fmt.Errorf("the group was not joined again: %s", s)
		}
	}
	if err := send(ends[0], batch(10, 100)); err != nil {
		return err
	}
	for got := (&collect{}); got.n < 10; {
		if err := ends[1].Receiver(0).Receive(got); err != nil {
			return err
		}
	}
	_, _ = fmt.Fprint(os.Stdout, log)
	return errors.Join(ends[0].Close(), ends[1].Close())
}

// exchange sends a batch and checks the datagrams that arrive.
func exchange(from, to *verbs.Multicast, sums bool) error {
	want := batch(verbs.Batch, from.Capabilities().Chunk)
	if err := send(from, want); err != nil {
		return err
	}
	got := &collect{keep: true}
	for got.n < verbs.Batch {
		if err := to.Receiver(0).Receive(got); err != nil {
			return err
		}
	}
	for i, h := range want.Headers {
		if !sums {
			h.Sum = 0
		}
		if got.heads[i] != h || !bytes.Equal(got.payload[i], want.Payloads[i]) {
			return fmt.Errorf("datagram %d: %+v with %d bytes, want %+v with %d",
				i, got.heads[i], len(got.payload[i]), h, len(want.Payloads[i]))
		}
	}
	if c := from.Counters(0); c.Sent != verbs.Batch || c.Doorbells != 1 || c.Completions != 1 {
		return fmt.Errorf("%+v for one batch", c)
	}
	// The sender receives only its own datagrams, and drops them.
	from.Receiver(0).Wake()
	self := &collect{}
	if err := from.Receiver(0).Receive(self); err != nil || self.n != 0 {
		return fmt.Errorf("the sender got %d datagrams: %v", self.n, err)
	}
	return nil
}

// A communicator has a group and a queue pair of its own. Ranks that are not in it receive nothing.
func TestCommunicators(t *testing.T) {
	dummyNet(t)
	cfg := verbs.McastConfig{Derive: byName}
	from, member, other := multicast(t, cfg), multicast(t, cfg), multicast(t, cfg)
	for range 3 { // queue pairs are reused
		must(t, from.AddComm(77, "x"))
		must(t, member.AddComm(77, "x"))
		b := batch(8, 100)
		must(t, send(from, b))
		s := &collect{}
		receive(t, member.Receiver(0), s, 8)
		// Datagrams to all ranks come after it.
		for i := range b.Headers {
			b.Headers[i].Comm = 1
		}
		must(t, send(from, b))
		s = &collect{keep: true}
		receive(t, other.Receiver(0), s, 8)
		for _, h := range s.heads {
			if h.Comm != 1 {
				t.Errorf("a rank that is not in the communicator received %+v", h)
			}
		}
		if c := from.Counters(0); c.QPs != 2 {
			t.Errorf("%+v: want a queue pair of the job and one of the communicator", c)
		}
		from.RemoveComm(77)
		member.RemoveComm(77)
		receive(t, member.Receiver(0), &collect{}, 8)
	}
}

// Registered memory is sent from where it is; other memory is copied.
func TestZeroCopy(t *testing.T) {
	dummyNet(t)
	from := multicast(t, verbs.McastConfig{})
	b := batch(2, 100)
	must(t, send(from, b))
	if c := from.Counters(0); c.Copied != 2 {
		t.Errorf("%+v: two payloads were not registered", c)
	}
	a, _ := pair(t)
	mem, err := a.Alloc(4000)
	must(t, err)
	t.Cleanup(func() { must(t, a.Free(mem)) })
	// The registered memory belongs to the device that the pair opened.
	d := a.dev
	m, err := verbs.OpenMulticast(d, verbs.McastConfig{Groups: []netip.Addr{netip.MustParseAddr("239.192.7.8")}, QKey: 1})
	must(t, err)
	t.Cleanup(func() { must(t, m.Close()) })
	b.Payloads[0], b.Payloads[1] = mem[1:2001], mem[2001:3001]
	must(t, send(m, b))
	if c := m.Counters(0); c.Copied != 0 || c.Sent != 2 {
		t.Errorf("%+v: registered memory was copied", c)
	}
}

// A datagram that does not fit would vanish, so it is never posted.
func TestOversize(t *testing.T) {
	dummyNet(t)
	m := multicast(t, verbs.McastConfig{})
	chunk := m.Capabilities().Chunk
	if _, err := m.Sender(0).Send(batch(2, chunk+1)); err == nil || !strings.Contains(err.Error(), "at most") {
		t.Errorf("got %v", err)
	}
	if c := m.Counters(0); c.Doorbells != 0 {
		t.Errorf("%+v: it was posted", c)
	}
	cfg := verbs.McastConfig{Chunk: chunk + 1, Groups: []netip.Addr{netip.MustParseAddr("239.192.7.9")}}
	if _, err := verbs.OpenMulticast(open(t), cfg); err == nil {
		t.Error("a chunk that does not fit was accepted")
	}
}

// Receiving allocates nothing, and calls into C at most once per batch.
func TestReceiveCost(t *testing.T) {
	dummyNet(t)
	from, to := multicast(t, verbs.McastConfig{}), multicast(t, verbs.McastConfig{})
	b := batch(verbs.Batch, 64)
	s := &collect{}
	sent := 0
	perRun := testing.AllocsPerRun(20, func() {
		must(t, send(from, b))
		sent += verbs.Batch
		receive(t, to.Receiver(0), s, sent)
	})
	c := to.Counters(0)
	t.Logf("%d datagrams in %d calls into C, %v allocations per batch of %d", c.Received, c.Calls, perRun, verbs.Batch)
	if perRun != 0 {
		t.Errorf("%v allocations for %d datagrams", perRun, verbs.Batch)
	}
	if c.Calls > c.Received {
		t.Errorf("%d calls for %d datagrams", c.Calls, c.Received)
	}
	if tx := from.Counters(0); tx.Doorbells != tx.Completions || tx.Sent != tx.Doorbells*verbs.Batch {
		t.Errorf("%+v: want one doorbell and one completion for each %d", tx, verbs.Batch)
	}
}
