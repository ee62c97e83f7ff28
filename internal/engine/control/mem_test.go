package control

import (
	"bytes"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/allcast/allcast/internal/engine/observer"
	"github.com/allcast/allcast/internal/fabric"
	"github.com/allcast/allcast/internal/settings"
	"github.com/allcast/allcast/internal/wire"
)

// memNet is a fabric in memory. Tests make it do what real networks rarely do.
type memNet struct {
	ranks             []*memRank
	secure, integrity bool
	chunk             int
	eager             bool                        // small operations are eager
	configure         func(rank int, cfg *Config) // before the rank's engine starts; nil: nothing to do
}

// engine is what New returns.
type engine struct {
	*Control
	*observer.Observer
}

func newEngine(cfg Config) (*engine, error) {
	c, o, err := New(cfg)
	return &engine{c, o}, err
}

// memRank is one rank's side of a memNet. The reliable side calls the peer's handler at once; the
// multicast side has a queue.
type memRank struct {
	net  *memNet
	rank int
	h    fabric.Handler

	mu  sync.Mutex
	reg map[fabric.OpKey][]byte

	queue   chan memDatagram
	wake    chan struct{}
	closed  chan struct{}
	once    sync.Once
	fail    chan error  // the next error of Receive
	deaf    atomic.Bool // nothing arrives
	pending atomic.Bool // datagrams always wait
	stuck   atomic.Bool // Send has no room until Close
	sent    uint64      // datagrams
	sending chan struct{}

	change func(*memDatagram) // changes datagrams on the way to this rank
	after  func()             // called after each datagram
}

type memDatagram struct {
	h       wire.Header
	payload []byte
}

func newMemNet(size int) *memNet {
	n := &memNet{chunk: 100}
	for r := range size {
		n.ranks = append(n.ranks, &memRank{
			net: n, rank: r, reg: map[fabric.OpKey][]byte{},
			queue: make(chan memDatagram, 1<<12), wake: make(chan struct{}, 1), closed: make(chan struct{}),
			fail: make(chan error, 1), sending: make(chan struct{}, 1),
		})
	}
	return n
}

// engines starts one engine per rank, and closes them when the test ends.
func (n *memNet) engines(t *testing.T) []*engine {
	t.Helper()
	var all []*engine
	for r, m := range n.ranks {
		cfg := Config{
			Config: process(r, len(n.ranks)), Multicast: m, Secret: []byte("secret"),
			Protection: settings.Protection{Secure: n.secure, Integrity: n.integrity},
			Reliable:   func(h fabric.Handler) (fabric.Reliable, error) { m.h = h; return reliable(memReliable{m}), nil },
		}
		if n.configure != nil {
			n.configure(r, &cfg)
		}
		e, err := newEngine(cfg)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, e)
	}
	t.Cleanup(func() {
		var wg sync.WaitGroup
		for _, e := range all {
			wg.Go(func() { _ = e.Close() })
		}
		wg.Wait()
	})
	return all
}

func (m *memRank) Capabilities() fabric.Capabilities {
	caps := fabric.Capabilities{
		Chunk: m.net.chunk, Batch: 4, Room: 256, Overhead: 16, Header: wire.HeaderSize + wire.SumSize,
	}
	if m.net.eager {
		caps.Eager, caps.Room = true, 2048
	}
	return caps
}

func (m *memRank) Subgroups() int { return 1 }
func (m *memRank) Attach(fabric.Poller, fabric.Sink, func(error)) bool {
	return false
}

func (m *memRank) Streams() int                 { return 1 }
func (m *memRank) Sender(int) fabric.Sender     { return m }
func (m *memRank) Receiver(int) fabric.Receiver { return m }
func (m *memRank) Wake()                        { m.poke(m.wake) }
func (m *memRank) Pending() bool                { return m.pending.Load() || len(m.queue) > 0 }
func (m *memRank) Stats() fabric.ReceiverStats  { return fabric.ReceiverStats{} }
func (m *memRank) Close() error                 { m.once.Do(func() { close(m.closed) }); return nil }

func (m *memRank) poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

func (m *memRank) Completed() uint64 { return m.sent }

func (m *memRank) Await(d time.Duration) {
	select {
	case <-m.closed:
	case <-time.After(d):
	}
}

func (m *memRank) Send(b *fabric.Batch) (int, error) {
	if m.stuck.Load() {
		m.poke(m.sending)
		select {
		case <-m.closed:
			return 0, fabric.ErrClosed
		default:
			return 0, fabric.ErrBusy
		}
	}
	for _, to := range m.net.ranks {
		if to == m || to.deaf.Load() {
			continue
		}
		for i := range b.Headers {
			d := memDatagram{b.Headers[i], bytes.Clone(b.Payloads[i])}
			if to.change != nil {
				to.change(&d)
			}
			to.queue <- d
		}
	}
	m.sent += uint64(len(b.Headers))
	return len(b.Headers), nil
}

func (m *memRank) Receive(s fabric.Sink) error {
	select {
	case <-m.closed:
		return fabric.ErrClosed
	case err := <-m.fail:
		return err
	case d := <-m.queue:
		s.Chunk(d.h, d.payload)
		if m.after != nil {
			m.after()
		}
	case <-m.wake:
	}
	s.Idle()
	return nil
}

type memReliable struct{ *memRank }

// reliable is a reliable side without optional features.
func reliable(m interface {
	fabric.Messages
	fabric.Memory
	fabric.Lifecycle
	fabric.Reader
},
) fabric.Reliable {
	return fabric.Reliable{Messages: m, Memory: m, Lifecycle: m, Reader: m}
}

func (m memReliable) Send(to int, msg []byte) { m.net.ranks[to].h.Message(m.rank, msg) }

func (m memReliable) SendMore(to int, msg []byte) { m.Send(to, msg) }

func (m memReliable) Put(to int, p fabric.Piece, data []byte) {
	m.net.ranks[to].h.Data(m.rank, p, 0, &fabric.Buffer{B: bytes.Clone(data)})
	m.h.PutDone(to, p)
}

func (m memReliable) Read(to int, r fabric.ReadRequest) {
	p := m.net.ranks[to]
	p.mu.Lock()
	var b []byte
	for _, s := range r.Spans {
		b = append(b, p.reg[r.Op][s.Off:s.Off+s.Len]...)
	}
	p.mu.Unlock()
	m.h.ReadData(to, r.ReadID, 0, &fabric.Buffer{B: b})
}

func (m memReliable) Register(op fabric.OpKey, buf []byte) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.reg[op] = buf
	return true
}

func (m memReliable) Unregister(op fabric.OpKey) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.reg, op)
}

func (m memReliable) Cancel(fabric.OpKey)         {}
func (m memReliable) Drop(int)                    {}
func (m memReliable) Flush(time.Duration)         {}
func (m memReliable) Stats() fabric.ReliableStats { return fabric.ReliableStats{} }
func (m memReliable) Close() error                { return nil }

// everywhere makes a call on all engines and waits for it.
func everywhere(t *testing.T, all []*engine, call func(rank int) Call) {
	t.Helper()
	reqs := make([]*Request, len(all))
	for r, e := range all {
		var err error
		if reqs[r], err = e.Start(World, call(r)); err != nil {
			t.Fatal(err)
		}
	}
	for r := range reqs {
		<-reqs[r].Done()
		if err := reqs[r].Err(); err != nil {
			t.Fatalf("rank %d: %v", r, err)
		}
	}
}

// broadcast sends n bytes from rank 0 by multicast and compares.
func broadcast(t *testing.T, all []*engine, n int) {
	t.Helper()
	bufs := make([][]byte, len(all))
	for r := range bufs {
		bufs[r] = make([]byte, n)
	}
	for i := range bufs[0] {
		bufs[0][i] = byte(i*7 + 1)
	}
	everywhere(t, all, func(r int) Call { return Call{Kind: wire.Broadcast, Algo: Multicast, Recv: bufs[r]} })
	for r := range bufs {
		if !bytes.Equal(bufs[r], bufs[0]) {
			t.Fatalf("rank %d: wrong data", r)
		}
	}
}

func TestBroadcastInMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broadcast(t, newMemNet(3).engines(t), 10_001)
	})
}

// A worker whose socket fails still answers: lost chunks are fetched, and operations and Close end.
func TestReceiveFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newMemNet(2)
		all := n.engines(t)
		n.ranks[1].fail <- errors.New("out of memory")
		n.ranks[1].deaf.Store(true)
		broadcast(t, all, 1000)
	})
}

// Foreign datagrams may keep a socket busy. That must not delay fetches forever.
func TestSomethingAlwaysWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newMemNet(2)
		all := n.engines(t)
		n.ranks[1].pending.Store(true)
		n.ranks[1].deaf.Store(true)
		broadcast(t, all, 1000)
	})
}

// Close ends calls even if the network takes no datagrams any more.
func TestCloseWhileSendIsStuck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newMemNet(2)
		n.ranks[0].stuck.Store(true)
		all := n.engines(t)
		var reqs []*Request
		for _, e := range all {
			r, err := e.Start(World, Call{Kind: wire.Broadcast, Algo: Multicast, Recv: make([]byte, 1000)})
			if err != nil {
				t.Fatal(err)
			}
			reqs = append(reqs, r)
		}
		<-n.ranks[0].sending
		if err := all[0].Close(); err != nil {
			t.Fatal(err)
		}
		<-reqs[0].Done()
		if err := reqs[0].Err(); !errors.Is(err, ErrClosed) {
			t.Errorf("got %v, want ErrClosed", err)
		}
	})
}

func TestStatsAfterClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newMemNet(2)
		all := n.engines(t)
		n.ranks[1].deaf.Store(true)
		broadcast(t, all, 1000)
		before := all[1].Stats()
		if err := all[1].Close(); err != nil {
			t.Fatal(err)
		}
		for range 10 {
			if after := all[1].Stats(); after.Repaired != before.Repaired || after.Repaired == 0 {
				t.Fatalf("%d chunks repaired before Close, %d after", before.Repaired, after.Repaired)
			}
		}
		synctest.Wait() // a late message may be a task for a moment
		if !all[1].tasks.Empty() {
			t.Error("tasks are left for a loop that has ended")
		}
	})
}

// process is a rank without people who watch it.
func process(rank, size int) observer.Config {
	return observer.Config{Job: settings.Job{Rank: rank, Size: size}}
}
