package rendezvous

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// peer is a rank below this one: a child, or on rank 0 any rank.
type peer struct {
	rank   int
	addr   string      // seen by its parent
	conn   net.Conn    // nil if other ranks relay
	offer  entry       // of its arrival
	fed    bool        // another rank passes results on to it
	broken atomic.Bool // a frame was cut off, so that no verdict can follow
}

// event is a frame of a rank below this one, or the end of a child's connection.
type event struct {
	child *peer
	rank  int // child.rank, or the rank whose frame the child relays
	frame frame
	err   error
}

// hub connects a rank with its children. One goroutine per child reads all the time, so that the rank notices a
// death at once. On rank 0, Join and Exchange consume the events. Other ranks relay them.
type hub struct {
	size    int
	tree    tree
	results tree
	grace   time.Duration
	peers   []*peer // by rank; nil for ranks that are not connected
	extra   []*peer // processes that cannot be in the job, but get the verdict
	events  chan event
	log     *slog.Logger

	adopting sync.Mutex // protects peers and done of a hub that adopts

	ending  sync.Once
	done    chan struct{} // closed when events have no more consumer
	readers sync.WaitGroup
}

func newHub(cfg Config) *hub {
	queue := cfg.Size // one event per rank
	if cfg.Rank != 0 {
		queue = min(queue, 64) // these are relayed at once
	}
	return &hub{
		size: cfg.Size, tree: cfg.tree, results: cfg.results, grace: cfg.grace, peers: make([]*peer, cfg.Size),
		events: make(chan event, queue), done: make(chan struct{}), log: cfg.Logger,
	}
}

func (h *hub) add(a arrival) *peer {
	p := &peer{rank: a.hello.rank, addr: a.addr, conn: a.conn, offer: a.offer}
	if p.conn != nil {
		h.readers.Go(func() { h.read(p) })
	}
	return p
}

// refuse keeps a connection for the verdict, up to a limit.
func (h *hub) refuse(a arrival) {
	switch {
	case a.conn == nil: // its parent keeps it
	case len(h.extra) >= h.size+maxStrangers:
		_ = a.conn.Close()
	default:
		h.extra = append(h.extra, h.add(a))
	}
}

// adopt confirms a child and adds it while other goroutines use children. It fails if this rank leaves. A child with
// the same number has died: a rank dials once.
func (h *hub) adopt(a arrival) bool {
	h.adopting.Lock()
	defer h.adopting.Unlock()
	select {
	case <-h.done:
		return false
	default:
	}
	// The socket buffer is empty, so the write does not block.
	if _, err := a.conn.Write(newFrame(frameTaken, 0)); err != nil {
		return false
	}
	if old := h.peers[a.hello.rank]; old != nil {
		_ = old.conn.Close()
	}
	h.peers[a.hello.rank] = h.add(a)
	return true
}

// peer returns a connected rank, or nil.
func (h *hub) peer(rank int) *peer {
	if rank >= h.size {
		return nil
	}
	return h.peers[rank]
}

// current reports whether an event is of a process that is still connected and may be in the job.
func (h *hub) current(ev event) bool {
	return h.peer(ev.child.rank) == ev.child
}

// drop forgets a rank that left, and all ranks that it relayed for.
func (h *hub) drop(ev event) {
	for rank, p := range h.peers {
		if p != nil && h.tree.within(rank, ev.rank) {
			h.peers[rank] = nil
		}
	}
	if ev.rank == ev.child.rank {
		_ = ev.child.conn.Close() // its reader ends, unless it has already
	}
}

// children returns the ranks that are connected to this one.
func (h *hub) children() []*peer {
	h.adopting.Lock()
	defer h.adopting.Unlock()
	return slices.DeleteFunc(slices.Clone(h.peers), func(p *peer) bool { return p == nil || p.conn == nil })
}

func (h *hub) read(p *peer) {
	for {
		f, err := readFrame(p.conn, fromChild)
		ev := event{p, p.rank, f, err}
		if err == nil && f.typ == frameRelay {
			if ev.rank, ev.frame, err = decodeRelay(f.payload); err == nil && !h.tree.within(ev.rank, p.rank) {
				err = fmt.Errorf("%w: relayed frame of rank %d", ErrProtocol, ev.rank)
			}
			if err != nil {
				ev.rank, ev.err = p.rank, err
			}
		}
		select {
		case h.events <- ev:
		case <-h.done:
			// Unread bytes would turn Close into a reset, which can overtake the verdict.
			_, _ = io.Copy(io.Discard, p.conn)
			return
		}
		if err != nil {
			return
		}
	}
}

// farewell sends the last frame, if there is one, to all children. It closes each connection once the child has
// closed its side, or when the grace period ends.
func (h *hub) farewell(last []byte) {
	h.ending.Do(func() {
		h.adopting.Lock()
		close(h.done)
		h.adopting.Unlock()
		deadline := time.Now().Add(h.grace)
		var writers sync.WaitGroup
		all := slices.Concat(h.extra, h.children())
		for _, p := range all {
			_ = p.conn.SetDeadline(deadline)
			if p.broken.Load() {
				_ = p.conn.Close()
				continue
			}
			writers.Go(func() {
				_, _ = p.conn.Write(last)
				closeWrite(p.conn)
			})
		}
		writers.Wait()
		h.readers.Wait()
		for _, p := range all {
			_ = p.conn.Close()
		}
	})
}

func (h *hub) localAddr() netip.Addr {
	local := netip.AddrFrom4([4]byte{127, 0, 0, 1}) // of a single rank
	for _, p := range h.children() {
		if local.IsLoopback() {
			local = addrOf(p.conn.LocalAddr())
		}
	}
	return local
}

// lost is the verdict at the end of a rank's connection. Its text begins with when.
func lost(p *peer, when, why string) *verdict {
	text := fmt.Sprintf("%srank %d at %v%s", when, p.rank, p.addr, why)
	return &verdict{kind: ErrLost, ranks: []int{p.rank}, text: text}
}

// whyLost continues a sentence that begins with a rank.
func whyLost(err error) string {
	if errors.Is(err, io.EOF) {
		return " closed its connection without saying why"
	}
	return ": " + err.Error()
}
