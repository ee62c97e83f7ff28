package aggregate

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/allcast/allcast/internal/inc"
)

// A PortConfig describes a rank to its aggregator.
type PortConfig struct {
	Tree    *inc.Tree
	Size    int // of the job; 0: as in the tree
	Rank    int
	SiteKey []byte
	Job     string // name for people
	Session uint32 // of the job; 0 is invalid
	Secret  []byte // of the session: at least 16 bytes, the same on all ranks
	Local   netip.Addr
	Chunk   int    // largest payload in bytes; at most MaxChunk
	Window  uint32 // wanted window
	Buffer  int    // wanted bytes of the socket's receive buffer; 0: 8 MiB
	Logger  *slog.Logger
	// Changed gets every change of the state, in order and from one goroutine. It must return soon, and must not
	// call Close.
	Changed func(inc.Aggregation)
	Timing  Timing
}

// Timing holds the intervals of control connections. Zero fields have defaults.
type Timing struct {
	Heartbeat time.Duration // between two pings; 1 s
	Expiry    time.Duration // silence after which the other side is gone; 10 s
	Retry     time.Duration // between two attempts to attach; inc.RetryAfter
}

func (t Timing) withDefaults() Timing {
	if t.Heartbeat == 0 {
		t.Heartbeat = time.Second
	}
	if t.Expiry == 0 {
		t.Expiry = 10 * time.Second
	}
	if t.Retry == 0 {
		t.Retry = time.Duration(inc.RetryAfter)
	}
	return t
}

// sendPatience is how long a call of Send waits for room. A train that is dropped costs a retry.
const sendPatience = 200 * time.Millisecond

// ErrClosed is the result of calls on a closed Port.
var ErrClosed = errors.New("the connection to the aggregators is closed")

// A Port is the connection of a rank to its aggregator.
type Port struct {
	cfg    PortConfig
	node   int // of the tree
	child  int // position of this rank among the node's children
	sock   *socket
	done   <-chan struct{} // closed by Close
	cancel context.CancelFunc
	wg     sync.WaitGroup
	closed atomic.Bool

	server atomic.Pointer[netip.AddrPort] // data address of the aggregator

	mu      sync.Mutex
	state   inc.Aggregation
	verdict chan struct{} // closed by the first verdict
	decided bool
	tokens  *tokens

	sending sync.Mutex
	train   []byte // datagrams to send
	segment int    // size of all but the last
	outbox  *outbox
	warned  bool

	in       receiver
	counters portCounters
}

// PortStats counts what a Port sent and received.
type PortStats struct {
	Sent, SentBytes         uint64 // datagrams, and their bytes with headers
	Unsent                  uint64 // datagrams that were dropped because there was no aggregator or no room
	Received, ReceivedBytes uint64
	Foreign                 uint64 // datagrams of other sessions, or malformed ones
	Dropped                 uint64 // by a full receive queue, as far as the system tells
	Attached                uint64 // times that the aggregators became usable
}

type portCounters struct {
	sent, sentBytes, unsent, received, receivedBytes, foreign, dropped, attached atomic.Uint64
}

// Open opens the socket and begins to attach in the background.
func Open(cfg PortConfig) (*Port, error) {
	if err := cfg.check(); err != nil {
		return nil, fmt.Errorf("aggregators: %w", err)
	}
	cfg.Timing = cfg.Timing.withDefaults()
	if cfg.Buffer == 0 {
		cfg.Buffer = 8 << 20
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	sock, err := openSocket(netip.AddrPortFrom(cfg.Local, 0), socketOptions{
		buffer: cfg.Buffer, warn: func(err error) { cfg.Logger.Warn(noTrains, "error", err) },
	})
	if err != nil {
		return nil, fmt.Errorf("aggregators: %w", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	p := &Port{
		cfg: cfg, sock: sock, done: ctx.Done(), cancel: cancel, verdict: make(chan struct{}), tokens: newTokens(cfg.Secret),
		train: make([]byte, 0, maxTrain), outbox: newOutbox(sendPatience),
		state: inc.Aggregation{Why: "not attached to an aggregator yet"},
	}
	p.node, p.child = cfg.Tree.Server(cfg.Rank)
	c := &client{
		addr: cfg.Tree.Nodes[p.node].Addr, from: cfg.Local, key: cfg.SiteKey, timing: cfg.Timing, log: cfg.Logger,
		attach:    p.attach,
		connected: p.connected,
		status:    p.changed,
		leave:     func() string { return "" },
	}
	p.wg.Go(func() { c.run(ctx) })
	return p, nil
}

func (c *PortConfig) check() error {
	if c.Tree == nil {
		return errors.New("no tree")
	}
	switch {
	case c.Size != 0 && c.Size != c.Tree.Size():
		return fmt.Errorf("a tree of %d ranks for a job of %d", c.Tree.Size(), c.Size)
	case c.Rank < 0 || c.Rank >= c.Tree.Size():
		return fmt.Errorf("rank %d of %d", c.Rank, c.Tree.Size())
	case len(c.SiteKey) < MinKey:
		return fmt.Errorf("a site key of %d bytes: want at least %d; set ALLCAST_SITE_KEY_FILE", len(c.SiteKey), MinKey)
	case !c.Local.IsValid() || c.Local.IsUnspecified():
		return errors.New("no local address")
	case c.Local.IsLinkLocalUnicast():
		return fmt.Errorf("%v is a link-local address, which an aggregator cannot answer: choose an interface with "+
			"another address (ALLCAST_IFNAME)", c.Local)
	}
	_, err := (&attach{
		Job: c.Job, Session: c.Session, Secret: c.Secret, Tree: c.Tree.String(), Size: c.Tree.Size(), Chunk: c.Chunk,
		Window: c.Window,
	}).check()
	return err
}

func (p *Port) attach() *attach {
	return &attach{
		Job: p.cfg.Job, Session: p.cfg.Session, Secret: p.cfg.Secret, Tree: p.cfg.Tree.String(), Size: p.cfg.Tree.Size(),
		Node: p.node, Child: p.child, Chunk: p.cfg.Chunk, Window: p.cfg.Window,
		Ranks: []member{{Rank: p.cfg.Rank, Addr: p.sock.local}},
	}
}

// connected sets where contributions go.
func (p *Port) connected(a netip.AddrPort) {
	if a.IsValid() {
		p.server.Store(&a)
	} else {
		p.server.Store(nil) // another process may have the address soon
	}
}

// changed handles a new state.
func (p *Port) changed(s status) {
	now := inc.Aggregation{Window: min(s.Window, p.cfg.Window), Why: s.Why}
	if now.Window > 0 {
		now.Why = ""
	}
	p.mu.Lock()
	before := p.state
	p.state = now
	first := !p.decided && (now.Window > 0 || !s.Pending)
	p.decided = p.decided || first
	p.mu.Unlock()
	if now.Window > 0 && before.Window == 0 {
		p.counters.attached.Add(1)
	}
	if now != before && p.cfg.Changed != nil {
		p.cfg.Changed(now)
	}
	if first {
		close(p.verdict)
	}
}

// Wait returns the first verdict on the aggregators: usable, refused or unreachable. It returns the current state
// when the context ends, or after Close.
func (p *Port) Wait(ctx context.Context) inc.Aggregation {
	select {
	case <-p.verdict:
	case <-ctx.Done():
	case <-p.done:
	}
	return p.State()
}

// State returns the state of this rank's aggregators.
func (p *Port) State() inc.Aggregation {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.state
}

// Addr returns the data address of this rank.
func (p *Port) Addr() netip.AddrPort { return p.sock.local }

// Token returns the token of an operation.
func (p *Port) Token(comm, number uint32) uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.tokens.of(comm, number)
}

// Send sends contributions or offers. The Port sets Session and Child. It copies the payloads, and is safe for
// concurrent use. Like the network, Send may lose datagrams: it waits for room only for a moment, and drops everything
// while there is no aggregator. The only error is ErrClosed.
func (p *Port) Send(hs []inc.Header, payloads [][]byte) error {
	p.sending.Lock()
	defer p.sending.Unlock()
	to := p.server.Load()
	if to == nil {
		p.counters.unsent.Add(uint64(len(hs)))
		return p.open()
	}
	p.outbox.begin()
	for i := range hs {
		size := inc.HeaderSize + len(payloads[i])
		if n := len(p.train); n > 0 && (size > p.segment || n+size > maxTrain || n/p.segment >= maxSegments) {
			p.flush(*to)
		}
		if len(p.train) == 0 {
			p.segment = size
		}
		h := hs[i]
		h.Session, h.Child = p.cfg.Session, uint16(p.child)
		n := len(p.train)
		p.train = p.train[:n+inc.HeaderSize]
		h.Put(p.train[n:])
		p.train = append(p.train, payloads[i]...)
		if size < p.segment {
			p.flush(*to)
		}
	}
	p.flush(*to)
	return p.open()
}

func (p *Port) open() error {
	if p.closed.Load() {
		return ErrClosed
	}
	return nil
}

// flush sends the train. The caller holds the lock of sending.
func (p *Port) flush(to netip.AddrPort) {
	if len(p.train) == 0 {
		return
	}
	n := (len(p.train) + p.segment - 1) / p.segment
	sent, err := p.sock.send(p.outbox, to, p.train, p.segment)
	if err != nil {
		p.counters.unsent.Add(uint64(n - sent))
		if !errors.Is(err, errNoRoom) && !errors.Is(err, ErrClosed) && !p.warned {
			p.warned = true
			p.cfg.Logger.Warn("cannot send to the aggregator", "address", to, "error", err)
		}
	}
	p.counters.sent.Add(uint64(sent))
	p.counters.sentBytes.Add(uint64(min(len(p.train), sent*p.segment)))
	p.train = p.train[:0]
}

// Receive calls f for every sum and every Want of this session until Close, and then returns ErrClosed. The caller
// checks the token. f may change the payload, but not keep it. After the datagrams of one system call, Receive calls
// idle.
func (p *Port) Receive(f func(h *inc.Header, payload []byte), idle func()) error {
	p.in.Lock()
	p.in.inbox, p.in.idle = newInbox(), idle
	var h inc.Header
	p.in.one = func(d []byte) {
		if len(d) < inc.HeaderSize {
			p.counters.foreign.Add(1)
			return
		}
		h = inc.ParseHeader(d)
		mine := h.Kind == inc.Result && int(h.Owner) == p.cfg.Rank ||
			h.Kind == inc.Want && int(h.Child) == p.child && len(d) == inc.HeaderSize
		if !mine || h.Session != p.cfg.Session {
			p.counters.foreign.Add(1)
			return
		}
		p.counters.received.Add(1)
		p.counters.receivedBytes.Add(uint64(len(d)))
		f(&h, d[inc.HeaderSize:])
	}
	p.in.Unlock()
	in := newInbox()
	for {
		n, err := p.sock.receive(in)
		switch {
		case errors.Is(err, ErrClosed):
			return ErrClosed
		case err != nil:
			select {
			case <-time.After(time.Millisecond): // the error may persist
			case <-p.done: // receive returns ErrClosed soon
			}
			continue
		}
		p.in.Lock()
		p.in.handle(in, n)
		p.in.Unlock()
	}
}

// Poll handles datagrams that wait, as Receive does, without blocking. It reports whether there were some. A goroutine
// that polls other sockets need not wait until Go has woken the one in Receive.
func (p *Port) Poll() bool {
	if !p.in.TryLock() {
		return false
	}
	defer p.in.Unlock()
	if p.in.inbox == nil {
		return false // Receive was not called yet
	}
	n := p.sock.poll(p.in.inbox)
	if n > 0 {
		p.in.handle(p.in.inbox, n)
	}
	return n > 0
}

// receiver hands datagrams to the functions of Receive. Its lock is held by the goroutine that does so.
type receiver struct {
	sync.Mutex
	inbox *inbox // of Poll
	one   func(datagram []byte)
	idle  func()
}

// handle handles the messages of one system call. The caller holds the lock.
func (r *receiver) handle(in *inbox, n int) {
	for i := range n {
		b, segment := in.message(i)
		each(b, segment, r.one)
	}
	r.idle()
}

// Stats returns the counters.
func (p *Port) Stats() PortStats {
	c := &p.counters
	return PortStats{
		Sent: c.sent.Load(), SentBytes: c.sentBytes.Load(), Unsent: c.unsent.Load(),
		Received: c.received.Load(), ReceivedBytes: c.receivedBytes.Load(), Foreign: c.foreign.Load(),
		Dropped: max(c.dropped.Load(), p.sock.drops()), Attached: c.attached.Load(),
	}
}

// Close detaches, and makes Receive return. It waits for Changed, and for two seconds at most for the network. It is
// idempotent.
func (p *Port) Close() error {
	p.closed.Store(true)
	p.cancel()
	p.wg.Wait()
	p.counters.dropped.Store(max(p.counters.dropped.Load(), p.sock.drops()))
	p.sock.close()
	return nil
}
