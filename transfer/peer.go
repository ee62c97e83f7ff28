package transfer

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/allcast/allcast/internal/units"
	"github.com/allcast/allcast/store"
)

// state is the state of a receiver, as the sender sees it.
type state uint8

const (
	stateMeeting   state = iota // gets the manifest, and claims what it has
	stateReady                  // takes part
	stateFinishing              // has everything, and puts it in place
	stateComplete
	stateLost
)

// peer is a receiver, as the sender sees it. The sender's lock guards its fields.
type peer struct {
	c       *control
	id      string
	name    string
	addr    string
	ordered bool
	gone    chan struct{} // closed when its connection has ended

	state    state
	have     bitset
	pending  bitset // broadcast, and neither stored nor missed
	pendingN int
	flying   int   // broadcasts to it that have not ended
	stored   int64 // bytes that it has
	lagging  bool
	waited   time.Duration // time for which its group has waited for its disk
	strikes  int
	setGroup int // last group for which it has set its address
	moved    time.Time
	result   ReceiverResult
}

func (p *peer) active() bool { return p.state < stateComplete }

// maxStrangers limits connections that have not proved to have the key.
const maxStrangers = 64

// accept serves connections until the listener is closed.
func (s *sender) accept(ctx context.Context) {
	strangers := make(chan struct{}, maxStrangers)
	for {
		conn, err := s.ln.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			select {
			case <-time.After(50 * time.Millisecond): // such as too many open files
				continue
			case <-ctx.Done():
				return
			}
		}
		select {
		case strangers <- struct{}{}:
			s.wg.Go(func() { s.meet(ctx, conn, func() { <-strangers }) })
		default:
			_ = conn.Close()
		}
	}
}

// meet authenticates a connection, and serves the receiver.
func (s *sender) meet(ctx context.Context, conn net.Conn, known func()) {
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Now()) })
	defer stop()
	defer func() { _ = conn.Close() }()
	_ = conn.SetDeadline(time.Now().Add(s.o.Timeout))
	secured, err := authSender(conn, s.o.Key, s.encrypt())
	var hello message
	var c *control
	if err == nil {
		c = newControl(secured, s.o.Timeout)
		hello, err = readMessage(c.in)
	}
	known()
	if err != nil || hello.Kind != msgHello || len(hello.ID) != 32 {
		return
	}
	_ = conn.SetDeadline(time.Time{})
	if ctx.Err() != nil {
		return
	}
	if s.o.Key == nil && !s.o.Insecure && !isLoopback(conn.RemoteAddr()) {
		why := "it has no key, and serves other machines only with one, or if that was allowed (Insecure)"
		goodbye(c, message{Kind: msgBye, Error: why})
		return
	}
	if hello.Version != version {
		why := fmt.Sprintf("this receiver has version %.20q, the sender has %q: use the same", hello.Version, version)
		goodbye(c, message{Kind: msgBye, Error: why})
		return
	}
	p := &peer{
		c: c, id: hello.ID, name: units.Printable(hello.Name), addr: conn.RemoteAddr().String(), ordered: hello.Ordered,
		moved: time.Now(), gone: make(chan struct{}),
	}
	p.result = ReceiverResult{Name: p.name, Address: p.addr}
	if why := s.admit(p); why != "" {
		goodbye(c, message{Kind: msgBye, Error: why})
		return
	}
	s.wg.Go(func() { c.ping(p.gone) })
	err = s.serve(ctx, p)
	close(p.gone)
	s.lose(p, err)
}

// admit adds a receiver. A restarted receiver replaces its predecessor.
func (s *sender) admit(p *peer) (why string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.m.stream && s.started {
		return "a pipe cannot be read again, so it takes no receivers after its start"
	}
	if s.ended {
		return "the transfer has ended"
	}
	for i, old := range s.peers {
		if old.id == p.id {
			if old.strikes >= maxStrikes {
				return fmt.Sprintf("this receiver broke %d groups: check its network", old.strikes)
			}
			p.strikes = old.strikes
			s.loseLocked(old, fmt.Errorf("%w: it was restarted", ErrLost))
			s.peers[i] = p
			return ""
		}
	}
	if len(s.peers) >= maxReceivers {
		return fmt.Sprintf("there are %d receivers already", len(s.peers))
	}
	s.peers = append(s.peers, p)
	return ""
}

// maxReceivers limits the receivers of a transfer.
const maxReceivers = 4096

// serve handles the messages of a receiver until it is complete or lost.
func (s *sender) serve(ctx context.Context, p *peer) error {
	ms := []message{{Kind: msgWelcome, Timeout: s.o.Timeout, Window: window, Lag: s.lag}}
	rest := s.zipped
	for len(rest) > 0 {
		n := min(len(rest), maxPart)
		ms = append(ms, message{Kind: msgManifest, Value: rest[:n], Last: n == len(rest)})
		rest = rest[n:]
	}
	if err := p.c.send(ms...); err != nil {
		return err
	}
	for {
		m, err := p.c.receive()
		if err != nil {
			return err
		}
		if end, err := s.handle(ctx, p, m); end || err != nil {
			return err
		}
	}
}

func (s *sender) handle(ctx context.Context, p *peer, m message) (end bool, err error) {
	switch m.Kind {
	case msgPing, msgJoined:
	case msgClaims:
		s.mu.Lock()
		meeting := p.state == stateMeeting
		s.mu.Unlock()
		if !meeting {
			return false, errors.New("claims at the wrong time")
		}
		return false, s.claims(ctx, p, m)
	case msgReady:
		s.ready(p)
	case msgStoreSet:
		s.mu.Lock()
		st := s.stores[m.Group]
		p.setGroup = max(p.setGroup, m.Group)
		s.mu.Unlock()
		if st != nil {
			return false, st.Set(ctx, m.Key, m.Value)
		}
	case msgStoreGet:
		s.mu.Lock()
		st := s.stores[m.Group]
		s.mu.Unlock()
		if st != nil {
			s.wg.Go(func() { answer(ctx, p, st, m) })
		}
	case msgStored:
		return false, s.stored(p, m)
	case msgMissed:
		s.mu.Lock()
		s.settle(p, m.Segment)
		s.cond.Broadcast()
		s.mu.Unlock()
	case msgComplete:
		if !s.complete(p, m.Bytes) {
			return false, errors.New("it says that it is complete before it has everything")
		}
		_ = p.c.send(message{Kind: msgBye})
		return true, nil
	case msgFail:
		if m.Wrong {
			err = ErrVerify
		} else {
			err = errReceiver
		}
		return true, fmt.Errorf("%w: %s", err, units.Printable(m.Error))
	default:
		return false, fmt.Errorf("a message of an unknown kind, %.20q", m.Kind)
	}
	return false, nil
}

// errReceiver marks an error that a receiver has reported.
var errReceiver = errors.New("it gave up")

// answer answers a get of the store.
func answer(ctx context.Context, p *peer, st *store.Server, m message) {
	v, err := st.Get(ctx, m.Key)
	if err == nil {
		_ = p.c.send(message{Kind: msgValue, Seq: m.Seq, Value: v})
	}
}

// claims compares the hashes of a receiver with those of the source.
func (s *sender) claims(ctx context.Context, p *peer, m message) error {
	claims, err := unpackClaims(m.Value)
	if err != nil {
		return err
	}
	for _, c := range claims {
		if s.m.stream || c.seg >= s.m.segments() || c.sum == (hash{}) {
			continue
		}
		sum, err := s.h.of(ctx, c.seg)
		if err != nil {
			s.fail(err)
			return err
		}
		if sum == c.sum && !p.have.has(c.seg) {
			p.have.set(c.seg) // no other goroutine reads it yet
			p.result.Resumed += s.m.length(c.seg)
		}
	}
	if !m.Last {
		return nil
	}
	var b []byte
	for _, w := range p.have {
		b = binary.LittleEndian.AppendUint64(b, w)
	}
	return p.c.send(message{Kind: msgHave, Value: b})
}

// ready lets a receiver take part.
func (s *sender) ready(p *peer) {
	s.mu.Lock()
	if p.state == stateMeeting {
		p.state, p.moved, p.stored = stateReady, time.Now(), p.result.Resumed
	}
	size := s.m.size
	s.cond.Broadcast()
	s.mu.Unlock()
	s.event(Event{Event: EventReceiver, Receiver: p.name, Address: p.addr, Resumed: p.result.Resumed, Total: size})
	s.finish(p)
}

// stored records that a receiver has a segment.
func (s *sender) stored(p *peer, m message) error {
	s.mu.Lock()
	if !p.pending.has(m.Segment) && !p.have.has(m.Segment) {
		s.mu.Unlock()
		return fmt.Errorf("it says that it has stored segment %d, which it was not sent", m.Segment)
	}
	s.settle(p, m.Segment)
	if !p.have.has(m.Segment) {
		p.have.set(m.Segment)
		p.stored += s.lengthOf(m.Segment)
	}
	p.moved, p.result.Bytes, p.strikes = time.Now(), m.Bytes, 0
	if s.m.stream {
		s.releaseLocked(m.Segment)
	}
	s.cond.Broadcast()
	s.mu.Unlock()
	s.finish(p)
	return nil
}

// lengthOf returns the length of a segment; of a pipe, that of a full one.
func (s *sender) lengthOf(seg int) int64 {
	if s.m.stream {
		return s.m.segment
	}
	return max(0, s.m.length(seg))
}

// settle ends the broadcast of a segment to a receiver.
func (s *sender) settle(p *peer, seg int) {
	if p.pending.has(seg) {
		p.pending.clear(seg)
		p.pendingN--
	}
}

// releaseLocked frees a segment of a pipe that all receivers have.
func (s *sender) releaseLocked(seg int) {
	for _, p := range s.peers {
		if p.active() && !p.have.has(seg) {
			return
		}
	}
	s.src.release(seg)
}

// finish tells a receiver that it has everything, if it does.
func (s *sender) finish(p *peer) {
	s.mu.Lock()
	all := p.state == stateReady && s.total >= 0 && p.pendingN == 0 && s.started && p.have.count() >= s.total
	if all {
		p.state, p.moved = stateFinishing, time.Now()
	}
	size := s.m.size
	s.mu.Unlock()
	if all {
		_ = p.c.send(message{Kind: msgFinish, Length: size})
	}
}

func (s *sender) complete(p *peer, bytes int64) bool {
	s.mu.Lock()
	if p.state != stateFinishing {
		s.mu.Unlock()
		return false
	}
	p.state = stateComplete
	p.result.Complete, p.result.Bytes, p.result.Seconds = true, bytes, s.seconds()
	s.cond.Broadcast()
	s.mu.Unlock()
	s.event(Event{Event: EventComplete, Receiver: p.name, Address: p.addr, Bytes: bytes, Resumed: p.result.Resumed})
	return true
}

// lose gives a receiver up. It may come back unless it has failed by itself.
func (s *sender) lose(p *peer, err error) {
	s.mu.Lock()
	lost := s.loseLocked(p, err)
	s.mu.Unlock()
	if lost {
		s.event(Event{Event: EventLost, Receiver: p.name, Address: p.addr, Reason: p.result.Error})
	}
}

func (s *sender) loseLocked(p *peer, err error) bool {
	if !p.active() {
		return false
	}
	if err == nil {
		err = ErrLost
	}
	var timeout net.Error
	if errors.As(err, &timeout) && timeout.Timeout() {
		err = fmt.Errorf("%w: silent for %v", ErrLost, s.o.Timeout)
	}
	p.state = stateLost
	p.result.Error, p.result.Seconds = err.Error(), s.seconds()
	if errors.Is(err, ErrVerify) {
		s.wrong = true
	}
	if g := s.joining; g != nil && g.has(p) {
		g.cancel()
	}
	if s.m.stream {
		for seg := range s.read {
			s.releaseLocked(seg)
		}
	}
	bye := message{Kind: msgBye, Error: p.result.Error, Again: !errors.Is(err, errReceiver)}
	s.byes.Go(func() { // may block
		if p.c.send(bye) == nil && closeWrite(p.c.conn) {
			select {
			case <-p.gone:
			case <-time.After(goodbyeTime):
			}
		}
		_ = p.c.conn.Close()
	})
	s.cond.Broadcast()
	return true
}

// goodbyeTime is the time that a receiver has to read the last message.
const goodbyeTime = time.Second

// goodbye refuses a receiver. It lets the receiver read the reason before the connection is closed: unread data of the
// receiver would otherwise make the kernel discard it.
func goodbye(c *control, m message) {
	if c.send(m) == nil && closeWrite(c.conn) {
		_ = c.conn.SetReadDeadline(time.Now().Add(goodbyeTime))
		_, _ = io.Copy(io.Discard, c.conn)
	}
}

// closeWrite ends the direction to the receiver.
func closeWrite(c net.Conn) bool {
	w, ok := c.(interface{ CloseWrite() error })
	return ok && w.CloseWrite() == nil
}
