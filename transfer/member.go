package transfer

import (
	"context"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/allcast/allcast"
)

// membership is a group that a receiver takes part in.
type membership struct {
	s     *session
	id    int
	casts chan message
	once  sync.Once
}

// end lets the group end after the broadcasts so far.
func (g *membership) end() { g.once.Do(func() { close(g.casts) }) }

// join starts to take part in a group.
func (s *session) join(m message) {
	g := &membership{s: s, id: m.Group, casts: make(chan message, 256)}
	s.groups[m.Group] = g
	s.member.Go(func() { g.run(m) })
}

// groupOptions returns the options with which all members of a group join.
func groupOptions(rank, size int, key []byte, secure bool, ifname string, timeout time.Duration) allcast.Options {
	return allcast.Options{
		Rank: rank, Size: size, Key: key, Secure: secure, Interface: ifname, Timeout: timeout, JoinTimeout: timeout,
		NoCalibration: true, Fabric: "ip",
	}
}

func (g *membership) run(m message) {
	s := g.s
	ifname := interfaceOf(s.c.conn.LocalAddr())
	if m.Interface != "" && isLoopback(s.c.conn.LocalAddr()) {
		ifname = m.Interface
	}
	o := groupOptions(m.Rank, m.Size, m.Value, m.Secure, ifname, s.c.idle)
	o.Store, o.Logger = &controlStore{s, m.Group}, s.r.o.Logger
	comm, err := allcast.Join(s.ctx, o)
	joined := message{Kind: msgJoined, Group: g.id}
	if err != nil {
		joined.Error = err.Error()
	}
	_ = s.c.send(joined)
	if err != nil {
		for cast := range g.casts {
			g.missed(cast)
		}
		return
	}
	stop := context.AfterFunc(s.ctx, func() { _ = comm.Abort() })
	defer stop()
	g.take(comm)
}

// take takes part in the broadcasts until the group ends.
func (g *membership) take(comm *allcast.Comm) {
	type started struct {
		cast message
		buf  []byte
		req  *allcast.Request
	}
	queue := make(chan started, cap(g.casts))
	failed := false
	var wg sync.WaitGroup
	wg.Go(func() {
		for p := range queue {
			<-p.req.Done()
			if p.req.Err() != nil {
				failed = true
				g.s.put(p.buf)
				g.missed(p.cast)
				continue
			}
			g.s.r.received.Add(p.cast.Wire)
			if p.cast.Discard {
				g.s.put(p.buf)
				continue
			}
			g.s.work <- job{p.cast, p.buf}
		}
	})
	for cast := range g.casts {
		buf := g.s.buffer()
		req, err := comm.StartBroadcast(buf[:cast.Wire], 0, allcast.WithAlgorithm(cast.Algo))
		if err != nil {
			g.s.put(buf)
			g.missed(cast)
			continue
		}
		queue <- started{cast, buf, req}
	}
	close(queue)
	wg.Wait()
	leave(comm, failed)
}

// leave closes a communicator. Members of a group that failed do not wait for each other.
func leave(comm *allcast.Comm, failed bool) {
	limit := 2 * time.Second
	if failed {
		_ = comm.Abort()
		limit = 0
	}
	_ = comm.CloseWithin(limit)
}

func (g *membership) missed(cast message) {
	if !cast.Discard {
		_ = g.s.c.send(message{Kind: msgMissed, Segment: cast.Segment})
	}
}

// controlStore is the store through which a group meets, over the control connection.
type controlStore struct {
	s     *session
	group int
}

// Set implements store.Store.
func (c *controlStore) Set(_ context.Context, key string, value []byte) error {
	return c.s.c.send(message{Kind: msgStoreSet, Group: c.group, Key: key, Value: value})
}

// Get implements store.Store.
func (c *controlStore) Get(ctx context.Context, key string) ([]byte, error) {
	s := c.s
	answer := make(chan []byte, 1)
	s.mu.Lock()
	s.seq++
	seq := s.seq
	s.calls[seq] = answer
	s.mu.Unlock()
	if err := s.c.send(message{Kind: msgStoreGet, Group: c.group, Key: key, Seq: seq}); err != nil {
		return nil, err
	}
	select {
	case v := <-answer:
		return v, nil
	case <-ctx.Done():
		s.mu.Lock()
		delete(s.calls, seq)
		s.mu.Unlock()
		return nil, context.Cause(ctx)
	case <-s.ctx.Done():
		return nil, context.Cause(s.ctx)
	}
}

// interfaceOf returns the name of the interface with a local address, or "" if there is none.
func interfaceOf(a net.Addr) string {
	tcp, ok := a.(*net.TCPAddr)
	if !ok {
		return ""
	}
	want, _ := netip.AddrFromSlice(tcp.IP)
	all, err := net.Interfaces()
	if err != nil {
		return ""
	}
	for _, ifi := range all {
		addrs, err := ifi.Addrs()
		if err != nil {
			continue
		}
		for _, a := range addrs {
			if n, ok := a.(*net.IPNet); ok {
				if have, _ := netip.AddrFromSlice(n.IP); have.Unmap() == want.Unmap() {
					return ifi.Name
				}
			}
		}
	}
	return ""
}

func isLoopback(a net.Addr) bool {
	tcp, ok := a.(*net.TCPAddr)
	return ok && tcp.IP.IsLoopback()
}
