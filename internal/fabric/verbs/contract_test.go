//go:build verbs

package verbs_test

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/allcast/allcast/internal/fabric"
	"github.com/allcast/allcast/internal/fabric/verbs"
)

func open(t *testing.T) *verbs.Device {
	t.Helper()
	d, err := verbs.Open("rxe0", 0)
	must(t, err)
	t.Cleanup(d.Close)
	return d
}

func multicast(t *testing.T, cfg verbs.McastConfig) *verbs.Multicast {
	t.Helper()
	cfg.Groups = []netip.Addr{netip.MustParseAddr("239.192.7.7")}
	cfg.QKey = 0x1234567
	m, err := verbs.OpenMulticast(open(t), cfg)
	must(t, err)
	t.Cleanup(func() { must(t, m.Close()) })
	return m
}

// collect takes datagrams.
type collect struct {
	heads   []fabric.Header
	payload [][]byte
	n       int
	keep    bool
}

func (c *collect) Expect([][]byte) int         { return 0 }
func (c *collect) Arrived([]fabric.Header) int { return 0 }
func (c *collect) Idle()                       {}

func (c *collect) Chunk(h fabric.Header, p []byte) {
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
		b.Headers = append(b.Headers, fabric.Header{Token: 1<<63 + uint64(i), Comm: 77, Imm: 0xfedc0000 + uint32(i), Sum: uint32(i)})
		b.Payloads = append(b.Payloads, content(size, i, 0))
	}
	return b
}

// receive waits until a sink has so many datagrams.
func receive(t *testing.T, rx fabric.Receiver, s *collect, n int) {
	t.Helper()
	for s.n < n {
		must(t, rx.Receive(s))
	}
}

// What is sent arrives as it was, headers and immediates too, with one doorbell and one
// completion a batch, and not at the sender.
func TestDatagrams(t *testing.T) {
	dummyNet(t)
	for _, sums := range []bool{false, true} {
		t.Run(fmt.Sprintf("sums=%v", sums), func(t *testing.T) {
			cfg := verbs.McastConfig{Sums: sums}
			must(t, exchange(multicast(t, cfg), multicast(t, cfg), sums))
		})
	}
}

// rdma_cm, which InfiniBand needs, can join here too. A process of its own does it, because
// the library keeps the device open.
func TestJoinThroughCM(t *testing.T) {
	dummyNet(t)
	for _, p := range start(t, 1, "", "cm") {
		if err := p.Wait(); err != nil {
			t.Errorf("%v: %s%s", err, &p.out, &p.err)
		}
	}
}

// throughCM is what that process does.
func throughCM() error {
	d, err := verbs.Open("", 0)
	if err != nil {
		return err
	}
	var ends [2]*verbs.Multicast
	for i := range ends {
		if ends[i], err = verbs.OpenMulticast(d, verbs.McastConfig{Groups: []netip.Addr{netip.MustParseAddr("239.192.7.7")}, CM: true}); err != nil {
			return err
		}
	}
	if err := exchange(ends[0], ends[1], false); err != nil {
		return err
	}
	return errors.Join(ends[0].Close(), ends[1].Close())
}

// exchange sends a batch and looks at what arrives.
func exchange(from, to *verbs.Multicast, sums bool) error {
	want := batch(verbs.Batch, from.Caps().Chunk)
	if err := from.Sender(0).Send(want); err != nil {
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
			return fmt.Errorf("datagram %d: %+v with %d bytes, want %+v with %d", i, got.heads[i], len(got.payload[i]), h, len(want.Payloads[i]))
		}
	}
	if c := from.Counters(0); c.Sent != verbs.Batch || c.Doorbells != 1 || c.Completions != 1 {
		return fmt.Errorf("%+v for one batch", c)
	}
	// The sender hears only itself, and keeps it to itself.
	from.Receiver(0).Wake()
	self := &collect{}
	if err := from.Receiver(0).Receive(self); err != nil || self.n != 0 {
		return fmt.Errorf("the sender got %d datagrams: %v", self.n, err)
	}
	return nil
}

// A communicator has a group and a queue pair of its own: who is not in it gets nothing.
func TestCommunicators(t *testing.T) {
	dummyNet(t)
	cfg := verbs.McastConfig{Derive: func(comm string, sub int) netip.Addr {
		return netip.AddrFrom4([4]byte{239, 192, comm[0], byte(sub)})
	}}
	from, member, other := multicast(t, cfg), multicast(t, cfg), multicast(t, cfg)
	for range 3 { // queue pairs are used again
		must(t, from.AddComm(77, "x"))
		must(t, member.AddComm(77, "x"))
		b := batch(8, 100)
		must(t, from.Sender(0).Send(b))
		s := &collect{}
		receive(t, member.Receiver(0), s, 8)
		// What all get comes after it.
		for i := range b.Headers {
			b.Headers[i].Comm = 1
		}
		must(t, from.Sender(0).Send(b))
		s = &collect{keep: true}
		receive(t, other.Receiver(0), s, 8)
		for _, h := range s.heads {
			if h.Comm != 1 {
				t.Errorf("who is not in the communicator got %+v", h)
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
	must(t, from.Sender(0).Send(b))
	if c := from.Counters(0); c.Copied != 2 {
		t.Errorf("%+v: two payloads were not registered", c)
	}
	a, _ := pair(t)
	mem, err := a.Alloc(4000)
	must(t, err)
	t.Cleanup(func() { must(t, a.Free(mem)) })
	// The pair has a device of its own: so has what is registered there.
	d := deviceOf(t, a)
	m, err := verbs.OpenMulticast(d, verbs.McastConfig{Groups: []netip.Addr{netip.MustParseAddr("239.192.7.8")}, QKey: 1})
	must(t, err)
	t.Cleanup(func() { must(t, m.Close()) })
	b.Payloads[0], b.Payloads[1] = mem[1:2001], mem[2001:3001]
	must(t, m.Sender(0).Send(b))
	if c := m.Counters(0); c.Copied != 0 || c.Sent != 2 {
		t.Errorf("%+v: registered memory was copied", c)
	}
}

// A datagram that does not fit would vanish: it is never posted.
func TestOversize(t *testing.T) {
	dummyNet(t)
	m := multicast(t, verbs.McastConfig{})
	chunk := m.Caps().Chunk
	if err := m.Sender(0).Send(batch(2, chunk+1)); err == nil || !strings.Contains(err.Error(), "vanish") {
		t.Errorf("got %v", err)
	}
	if c := m.Counters(0); c.Doorbells != 0 {
		t.Errorf("%+v: it was posted", c)
	}
	if _, err := verbs.OpenMulticast(open(t), verbs.McastConfig{Chunk: chunk + 1, Groups: []netip.Addr{netip.MustParseAddr("239.192.7.9")}}); err == nil {
		t.Error("a chunk that does not fit was accepted")
	}
}

// Receiving allocates nothing, and calls into C once a batch at most.
func TestReceiveCost(t *testing.T) {
	dummyNet(t)
	from, to := multicast(t, verbs.McastConfig{}), multicast(t, verbs.McastConfig{})
	b := batch(verbs.Batch, 64)
	s := &collect{}
	sent := 0
	perRun := testing.AllocsPerRun(20, func() {
		must(t, from.Sender(0).Send(b))
		sent += verbs.Batch
		receive(t, to.Receiver(0), s, sent)
	})
	c := to.Counters(0)
	t.Logf("%d datagrams in %d calls into C, %v allocations a batch of %d", c.Received, c.Calls, perRun, verbs.Batch)
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

// Wake ends a Receive that waits, and Close all that come.
func TestWakeAndClose(t *testing.T) {
	dummyNet(t)
	m := multicast(t, verbs.McastConfig{})
	rx := m.Receiver(0)
	got := make(chan error)
	go func() { got <- rx.Receive(&collect{}) }()
	rx.Wake()
	if err := <-got; err != nil {
		t.Error(err)
	}
	go func() { got <- rx.Receive(&collect{}) }()
	must(t, m.Close())
	if err := <-got; !errors.Is(err, fabric.ErrClosed) {
		t.Errorf("got %v", err)
	}
	if err := m.Sender(0).Send(batch(1, 1)); !errors.Is(err, fabric.ErrClosed) {
		t.Errorf("got %v", err)
	}
}

// events is a handler that writes down what it is told.
type events struct {
	mu   sync.Mutex
	all  []string
	data map[uint32][]byte
	more chan struct{}
}

func newEvents() *events { return &events{data: map[uint32][]byte{}, more: make(chan struct{})} }

func (e *events) add(format string, args ...any) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.all = append(e.all, fmt.Sprintf(format, args...))
	close(e.more)
	e.more = make(chan struct{})
}

func (e *events) Message(from int, msg []byte) { e.add("message %d %d", from, len(msg)) }

func (e *events) Data(_ int, p fabric.Piece, off int64, b *fabric.Buffer) {
	e.mu.Lock()
	e.data[p.Nth] = append(e.data[p.Nth][:off], b.B...)
	done := int64(len(e.data[p.Nth])) == p.Len
	e.mu.Unlock()
	b.Release()
	if done {
		e.add("data %d", p.Nth)
	}
}

func (e *events) PutDone(_ int, p fabric.Piece)                     { e.add("put %d", p.Nth) }
func (e *events) ReadData(int, fabric.Range, int64, *fabric.Buffer) { e.add("not this one") }
func (e *events) ReadPlaced(_ int, r fabric.Range, ok bool)         { e.add("read %d %v", r.ID, ok) }

func (e *events) RegisterFailed(op fabric.OpKey, err error) { e.add("register %v: %v", op, err) }

func (e *events) Lost(peer int, err error) {
	var v *verbs.Error
	switch {
	case errors.Is(err, fabric.ErrGoodbye):
		e.add("goodbye %d", peer)
	case errors.As(err, &v):
		e.add("lost %d: peer %d, %v, %v", peer, v.Peer, v.Status, strings.HasPrefix(v.Device, "rxe0") && v.QP != 0)
	default:
		e.add("lost %d: %v", peer, err)
	}
}

// wait waits for an event.
func (e *events) wait(t *testing.T, want string) {
	t.Helper()
	late := time.After(30 * time.Second)
	for {
		e.mu.Lock()
		for _, got := range e.all {
			if got == want {
				e.mu.Unlock()
				return
			}
		}
		all, more := e.all, e.more
		e.mu.Unlock()
		select {
		case <-more:
		case <-late:
			t.Fatalf("no %q in %q", want, all)
		}
	}
}

func (e *events) has(want string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, got := range e.all {
		if got == want {
			return true
		}
	}
	return false
}

// end is one side of a pair.
type end struct {
	*verbs.RC
	ev  *events
	dev *verbs.Device
}

func deviceOf(t *testing.T, e *end) *verbs.Device { t.Helper(); return e.dev }

// pair connects two ranks.
func pair(t *testing.T) (a, b *end) {
	t.Helper()
	ends := make([]*end, 2)
	cards := make([]*verbs.Card, 2)
	for i := range ends {
		d := open(t)
		rc, err := verbs.NewRC(d, i, 2)
		must(t, err)
		t.Cleanup(func() { must(t, rc.Close()) })
		ends[i], cards[i] = &end{rc, newEvents(), d}, rc.Card()
	}
	for _, e := range ends {
		must(t, e.Connect(cards))
	}
	for _, e := range ends {
		must(t, e.Start(e.ev, nil))
	}
	return ends[0], ends[1]
}

// Messages, small pieces and large ones, far more than there is room for at once, in both
// directions.
func TestMessagesAndPuts(t *testing.T) {
	dummyNet(t)
	a, b := pair(t)
	const count = 300
	for i := range count {
		for _, e := range []*end{a, b} {
			to := 1
			if e == b {
				to = 0
			}
			if i%3 == 0 {
				e.SendMore(to, make([]byte, i+1))
			}
			e.Send(to, make([]byte, i))
		}
	}
	a.ev.wait(t, fmt.Sprintf("message 1 %d", count-1))
	b.ev.wait(t, fmt.Sprintf("message 0 %d", count-1))
	sizes := []int{0, 1, 16 << 10, 16<<10 + 1, 256 << 10, 1<<20 + 13}
	for i, n := range sizes {
		a.Put(1, fabric.Piece{Nth: uint32(i), Len: int64(n)}, content(n, i, 0))
	}
	for i, n := range sizes {
		b.ev.wait(t, fmt.Sprintf("data %d", i))
		a.ev.wait(t, fmt.Sprintf("put %d", i))
		if !bytes.Equal(b.ev.data[uint32(i)], content(n, i, 0)) {
			t.Errorf("a piece of %d bytes arrived as another", n)
		}
	}
	if frames := 4*count/3 + 16 + 2 + 66; a.Doorbells() > uint64(frames) {
		t.Errorf("%d doorbells for %d frames", a.Doorbells(), frames)
	}
}

// Reads go straight to their place, count only while the buffer is registered, and end in
// any case.
func TestReads(t *testing.T) {
	dummyNet(t)
	a, b := pair(t)
	op := fabric.OpKey{Comm: 3, Seq: 1 << 40}
	far, near := content(3<<20, 1, 1), make([]byte, 3<<20)
	a.Register(op, near)
	b.Register(op, far)
	const off, n = 12345, 2<<20 + 17
	a.ReadInto(1, fabric.Range{Op: op, ID: 1, Off: off, Len: n}, near[off:off+n])
	a.ev.wait(t, "read 1 true")
	if !bytes.Equal(near[off:off+n], far[off:off+n]) || near[off-1] != 0 || near[off+n] != 0 {
		t.Error("something else was read")
	}
	if a.Reads() != 3 {
		t.Errorf("%d requests for 2 MiB and a bit, want 3", a.Reads())
	}
	// What is not registered any more does not count, and the connection stays.
	b.Unregister(op)
	a.ReadInto(1, fabric.Range{Op: op, ID: 2, Off: 0, Len: 100}, near[:100])
	a.ev.wait(t, "read 2 false")
	a.ReadInto(1, fabric.Range{Op: fabric.OpKey{Comm: 9}, ID: 3, Off: 0, Len: 100}, near[:100])
	a.ev.wait(t, "read 3 false")
	a.Unregister(op)
	a.Send(1, []byte("still there"))
	b.ev.wait(t, "message 0 11")
}

// A peer that left in order said goodbye; one that did not answers no more.
func TestGoodbyeAndDeath(t *testing.T) {
	dummyNet(t)
	a, b := pair(t)
	a.Send(1, []byte("hello"))
	b.ev.wait(t, "message 0 5")
	must(t, a.Close())
	b.ev.wait(t, "goodbye 0")

	a, b = pair(t)
	a.Send(1, []byte("hello"))
	b.ev.wait(t, "message 0 5")
	b.Die()
	a.Put(1, fabric.Piece{Nth: 7, Len: 100_000}, make([]byte, 100_000))
	a.ev.wait(t, "put 7")
	a.ev.wait(t, "lost 1: peer 1, RETRY_EXC_ERR: the peer does not answer, true")
	if a.ev.has("goodbye 1") {
		t.Error("the dead said goodbye")
	}
}
