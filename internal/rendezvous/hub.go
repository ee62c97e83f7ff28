package rendezvous

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// peer is a rank as rank 0 sees it.
type peer struct {
	rank   int
	conn   net.Conn
	broken atomic.Bool // a frame was cut off, so that no verdict can follow
}

// event is a frame of a peer, or the end of its connection.
type event struct {
	peer  *peer
	frame frame
	err   error
}

// hub is rank 0's part of the star. One goroutine per peer reads all the time, so that rank 0 notices a
// death at once. Join and Exchange consume the events.
type hub struct {
	size   int
	grace  time.Duration
	peers  []*peer // by rank; [0] is nil
	extra  []*peer // processes that cannot be in the job, but get the verdict
	events chan event

	ending  sync.Once
	done    chan struct{} // closed when events have no more consumer
	readers sync.WaitGroup
}

func newHub(cfg Config) *hub {
	return &hub{
		size: cfg.Size, grace: cfg.grace, peers: make([]*peer, cfg.Size),
		events: make(chan event, cfg.Size), done: make(chan struct{}),
	}
}

func (h *hub) add(a arrival) *peer {
	p := &peer{rank: a.hello.rank, conn: a.conn}
	h.readers.Go(func() { h.read(p) })
	return p
}

func (h *hub) read(p *peer) {
	for {
		f, err := readFrame(p.conn, fromRank)
		select {
		case h.events <- event{p, f, err}:
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

// farewell sends the last frame to all peers. It closes each connection once the peer has closed its side,
// or when the grace period ends.
func (h *hub) farewell(last []byte) {
	h.ending.Do(func() {
		close(h.done)
		deadline := time.Now().Add(h.grace)
		var writers sync.WaitGroup
		all := slices.DeleteFunc(slices.Concat(h.extra, h.peers), func(p *peer) bool { return p == nil })
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
	for _, p := range h.peers[1:] {
		if local.IsLoopback() {
			local = addrOf(p.conn.LocalAddr())
		}
	}
	return local
}

// lost is the verdict at the end of a peer's connection. Its text begins with when.
func lost(p *peer, when string, err error) *verdict {
	why := ": " + err.Error()
	if errors.Is(err, io.EOF) {
		why = " closed its connection without saying why"
	}
	text := fmt.Sprintf("%srank %d at %v%s", when, p.rank, p.conn.RemoteAddr(), why)
	return &verdict{kind: ErrLost, ranks: []int{p.rank}, text: text}
}
