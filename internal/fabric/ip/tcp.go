// Package ip is the fabric on IP networks: UDP multicast for the unreliable side, TCP
// for the reliable one. It needs no hardware and no privileges.
package ip

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/allcast/allcast/internal/fabric"
	"github.com/allcast/allcast/internal/fabric/session"
	"github.com/allcast/allcast/internal/inherit"
)

// TCPConfig configures the reliable side.
type TCPConfig struct {
	Rank, Size int
	Listener   *net.TCPListener // made by Listen, so that the other ranks could learn its address
	Addrs      []string         // of all ranks, host:port
	Secret     []byte           // key of the job; connections are authenticated with it in both directions
	Secure     bool             // connections are encrypted; the same on all ranks
	Integrity  bool             // connections carry checksums, unless Secure; the same on all ranks
	Timeout    time.Duration    // time without progress after which a peer is lost; 0: 10 s
	Local      netip.Addr       // address of outgoing connections, if valid
	Poller     *Poller          // reads the connections; nil: one goroutine per connection does
	Logger     *slog.Logger     // may be nil

	limits *tcpLimits // nil: tcpDefaults
}

const (
	tcpTimeout = 10 * time.Second
	// tcpBusy is how many timeouts a peer may take to answer once its kernel has accepted a connection. The peer may be
	// starved by other processes; if it is dead, heartbeats show that earlier.
	tcpBusy = 3
)

// tcpLimits bound what a rank waits for. Tests change them.
type tcpLimits struct {
	connect time.Duration // one attempt, up to the handshake
	// refused is how long a refused connection is retried. Listeners exist before their addresses
	// are known, so a refusal means that the process is gone.
	refused time.Duration
	goodbye time.Duration // Close
	flush   time.Duration // for a dropped or leaving peer to take the queue
	// grace is how long this rank reads on after its own connection failed. What the peer sent
	// before, perhaps a verdict, must come before the report of its loss.
	grace time.Duration
	// full is how long a rank tries again that has run out of something of its own, such as descriptors: others in its
	// process, or on its machine, may give some back.
	full time.Duration
}

var tcpDefaults = tcpLimits{
	connect: 5 * time.Second, refused: time.Second, goodbye: 2 * time.Second, flush: time.Second,
	grace: 500 * time.Millisecond, full: time.Second,
}

// TCP is the reliable side over TCP connections, each used in one direction. A rank sends on the
// connection that it dialled, so two ranks that dial each other at the same time need no tie-break.
// The other direction carries only the goodbye of a rank that never sent anything, and the end of
// file that shows its death.
//
// Handler's methods are called for one peer in order, except PutDone, which may run at the same time
// as another method. They may call anything but Close.
type TCP struct {
	cfg    TCPConfig
	self   authSelf
	h      fabric.Handler
	log    *slog.Logger
	peers  []*peer // by rank; nil: this rank
	others []*peer // all but nil

	ctx     context.Context // ends dials under way
	cancel  context.CancelFunc
	wg      sync.WaitGroup
	closed  atomic.Bool
	closing sync.Once
	full    sync.Once // this rank has run out of something

	pending tcpPending
	turns   tcpTurns
	buffers peerPool

	regMu sync.RWMutex // read-locked while a registered buffer is read
	reg   map[fabric.OpKey][]byte

	strangers atomic.Uint64 // connections that were not authenticated
}

// Reliable is t with its capabilities.
func (t *TCP) Reliable() fabric.Reliable {
	r := fabric.Reliable{Messages: t, Memory: t, Lifecycle: t, Reader: t}
	if t.cfg.Poller != nil {
		r.Poller = t.cfg.Poller
	}
	return r
}

// Listen makes the listener of a rank on any free port, on one address if local is valid.
func Listen(local netip.Addr) (*net.TCPListener, error) {
	addr := ":0"
	if local.IsValid() {
		addr = netip.AddrPortFrom(local, 0).String()
	}
	var lc net.ListenConfig
	lc.SetMultipathTCP(false) // MPTCP sockets support fewer options
	l, err := lc.Listen(context.Background(), "tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("listen for peers: %w", err)
	}
	inherit.Conn(l)
	return l.(*net.TCPListener), nil
}

// NewTCP starts to accept connections of peers. It owns cfg.Listener.
func NewTCP(cfg TCPConfig, h fabric.Handler) (*TCP, error) {
	switch {
	case cfg.Size < 1 || cfg.Rank < 0 || cfg.Rank >= cfg.Size:
		return nil, fmt.Errorf("rank %d of %d", cfg.Rank, cfg.Size)
	case len(cfg.Addrs) != cfg.Size:
		return nil, fmt.Errorf("%d addresses for %d ranks", len(cfg.Addrs), cfg.Size)
	case cfg.Listener == nil:
		return nil, errors.New("no listener")
	case len(cfg.Secret) == 0:
		return nil, errors.New("no job key")
	case cfg.Timeout < 0:
		return nil, fmt.Errorf("timeout %v", cfg.Timeout)
	}
	if cfg.Timeout == 0 {
		cfg.Timeout = tcpTimeout
	}
	if cfg.limits == nil {
		cfg.limits = &tcpDefaults
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	protection := protectNothing
	if cfg.Secure {
		protection = protectSeal
	} else if cfg.Integrity {
		protection = protectSums
	}
	t := &TCP{
		cfg: cfg, h: h,
		self:  authSelf{rank: cfg.Rank, size: cfg.Size, secret: cfg.Secret, protection: protection},
		log:   cfg.Logger,
		peers: make([]*peer, cfg.Size),
		turns: make(tcpTurns, tcpAtOnce),
		reg:   make(map[fabric.OpKey][]byte),
	}
	t.pending.limit = 2*cfg.Size + 64
	t.ctx, t.cancel = context.WithCancel(context.Background())
	for i := range t.peers {
		if i != cfg.Rank {
			t.peers[i] = newPeer(t, i)
			t.others = append(t.others, t.peers[i])
		}
	}
	t.wg.Go(t.accept)
	return t, nil
}

// peer returns a peer. It panics for any other rank.
func (t *TCP) peer(rank int) *peer {
	if rank < 0 || rank >= len(t.peers) || rank == t.cfg.Rank {
		panic(fmt.Sprintf("fabric/ip: rank %d of %d has no peer %d", t.cfg.Rank, t.cfg.Size, rank))
	}
	return t.peers[rank]
}

// Send implements fabric.Messages. msg is not longer than session.MaxMessage.
func (t *TCP) Send(to int, msg []byte) { t.send(to, msg, false) }

// SendMore implements fabric.Messages.
func (t *TCP) SendMore(to int, msg []byte) { t.send(to, msg, true) }

func (t *TCP) send(to int, msg []byte, more bool) {
	if len(msg) > session.MaxMessage {
		panic(fmt.Sprintf("fabric/ip: message of %d bytes", len(msg)))
	}
	t.peer(to).frame(&session.Frame{Kind: session.Message, N: len(msg)}, msg, more)
}

// Put implements fabric.Messages.
func (t *TCP) Put(to int, p fabric.Piece, data []byte) {
	if int64(len(data)) != p.Len {
		panic(fmt.Sprintf("fabric/ip: piece of %d bytes with %d", p.Len, len(data)))
	}
	t.peer(to).put(p, data)
}

// Read implements fabric.Reader.
func (t *TCP) Read(to int, r fabric.ReadRequest) {
	if len(r.Spans) == 0 || len(r.Spans) > fabric.MaxSpans {
		panic(fmt.Sprintf("fabric/ip: a read of %d spans", len(r.Spans)))
	}
	spans := session.AppendSpans(make([]byte, 0, len(r.Spans)*session.SpanSize), r.Spans)
	t.peer(to).frame(&session.Frame{Kind: session.Read, N: len(spans), Op: r.Op, ID: r.ID}, spans, false)
}

// Register implements fabric.Memory.
func (t *TCP) Register(op fabric.OpKey, buf []byte) (ready bool) {
	t.regMu.Lock()
	defer t.regMu.Unlock()
	t.reg[op] = buf
	return true
}

// Unregister implements fabric.Memory. It waits for at most one copy per peer.
func (t *TCP) Unregister(op fabric.OpKey) {
	t.regMu.Lock()
	defer t.regMu.Unlock()
	delete(t.reg, op)
}

// copyOut fills b with registered memory: the bytes of r from part on. It refuses a read that is not
// inside a registered buffer.
func (t *TCP) copyOut(b []byte, r *fabric.ReadRequest, part int64) bool {
	t.regMu.RLock()
	defer t.regMu.RUnlock()
	buf, ok := t.reg[r.Op]
	for _, s := range r.Spans {
		if !ok || s.Off > int64(len(buf)) || s.Len > int64(len(buf))-s.Off {
			return false
		}
		if skip := min(part, s.Len); len(b) > 0 {
			part -= skip
			b = b[copy(b, buf[s.Off+skip:s.Off+s.Len]):]
		}
	}
	return true
}

// Cancel implements fabric.Messages. A put that has begun ends between two of its parts.
func (t *TCP) Cancel(op fabric.OpKey) {
	for _, p := range t.others {
		p.cancel(op)
	}
}

// Drop implements fabric.Lifecycle. The handler gets nothing more of the peer.
func (t *TCP) Drop(to int) { t.peer(to).drop(t.cfg.limits.flush) }

// Flush implements fabric.Lifecycle. It runs rarely, before a process may end, so it polls: a
// notification would cost something on every write.
func (t *TCP) Flush(limit time.Duration) {
	waits := func(p *peer) bool { return !p.flushed() }
	for end := time.Now().Add(limit); slices.ContainsFunc(t.others, waits) && time.Now().Before(end); {
		time.Sleep(100 * time.Microsecond)
	}
}

// Stats implements fabric.Lifecycle.
func (t *TCP) Stats() fabric.ReliableStats {
	m := make(map[int]fabric.PeerStats)
	for _, p := range t.others {
		if s := (fabric.PeerStats{Sent: p.sent.Load(), Received: p.recvd.Load()}); s != (fabric.PeerStats{}) {
			m[p.rank] = s
		}
	}
	return fabric.ReliableStats{Peers: m, RejectedConns: t.strangers.Load()}
}

// Close implements fabric.Lifecycle. It reads and drops what peers still send, so that no reset
// destroys what this rank has sent.
func (t *TCP) Close() (err error) {
	t.closing.Do(func() {
		t.closed.Store(true)
		if err = t.cfg.Listener.Close(); errors.Is(err, net.ErrClosed) {
			err = nil
		}
		t.pending.close()
		for _, p := range t.others {
			p.drop(t.cfg.limits.goodbye)
		}
		t.wg.Wait()
		t.cancel()
	})
	return err
}
