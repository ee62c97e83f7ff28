package transfer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/allcast/allcast/store"
)

// window is the number of broadcasts in flight.
const window = 3

// sender is one call of Send.
type sender struct {
	o      SendOptions
	m      *manifest
	zipped []byte // manifest, compressed
	src    source
	h      *hashes
	ln     net.Listener
	lag    int // segments that a receiver may be behind its disk
	begin  time.Time
	wg     sync.WaitGroup
	byes   sync.WaitGroup // last messages
	events sync.Mutex
	pacer  pacer
	zip    *zstd.Encoder // nil: no compression

	mu      sync.Mutex
	cond    *sync.Cond
	peers   []*peer
	stores  map[int]*store.Server
	groups  int // number of groups so far
	joining *group
	total   int  // number of segments; -1: a pipe whose end was not reached
	read    int  // pipe: number of segments that were read
	started bool // the transfer, not only the listener
	ended   bool
	wrong   bool // a receiver has found wrong data
	since   time.Time
	fatal   error
	sent    int64
	size    int64 // pipe: bytes so far

	pool sync.Pool
}

// ErrIncomplete means that some receivers do not have everything; Summary says which.
var ErrIncomplete = errors.New("some receivers are not complete")

// Send sends files to receivers until all that take part are complete or lost. Its Summary lists every receiver. It
// returns nil only if all of them are complete, and as many as the options ask for.
func Send(ctx context.Context, o SendOptions) (*Summary, error) {
	s, err := newSender(o)
	if err != nil {
		return nil, err
	}
	if s.ln = o.Listener; s.ln == nil {
		if s.ln, err = net.Listen("tcp", s.o.Listen); err != nil {
			return nil, fmt.Errorf("cannot listen: %w", err)
		}
	}
	s.begin = time.Now()
	s.event(Event{Event: EventListening, Address: s.ln.Addr().String(), Files: s.files(), Total: s.m.size})
	serving, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	s.wg.Go(func() { s.accept(serving) })
	s.wg.Go(func() { s.watch(serving) })
	wake := context.AfterFunc(ctx, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.cond.Broadcast()
	})
	err = s.conduct(ctx)
	wake()
	err = s.end(ctx, err)
	_ = s.ln.Close()
	s.byes.Wait()
	cancel(err)
	s.wg.Wait()
	s.byes.Wait()
	return s.summary(), err
}

func newSender(o SendOptions) (*sender, error) {
	if err := o.defaults(); err != nil {
		return nil, err
	}
	s := &sender{o: o, stores: map[int]*store.Server{}, pacer: pacer{rate: o.Rate / 8}}
	s.cond = sync.NewCond(&s.mu)
	if o.Stdin != nil {
		s.m = &manifest{segment: o.Segment, stream: true, entries: []entry{
			{path: o.StdinName, mode: 0o644, mtime: time.Now().UnixNano()},
		}}
		if err := s.m.check(); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrInput, err)
		}
		s.src, s.total = &pipeSource{r: o.Stdin, kept: map[int][]byte{}}, -1
	} else {
		w, err := walk(o.Paths, o.Include, o.Exclude)
		if err != nil {
			return nil, err
		}
		if s.m, err = w.manifest(o.Segment); err != nil {
			return nil, err
		}
		s.src, s.total = &fileSource{s.m, w.files}, s.m.segments()
	}
	s.lag = max(window+1, int(min(o.MaxLag/s.m.segment, maxLag)))
	s.h = &hashes{src: s.src, buf: make([]byte, s.m.segment), known: map[int]hash{}}
	s.pool.New = func() any { b := make([]byte, s.m.segment); return &b }
	z, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(2))
	if err != nil {
		return nil, err
	}
	text := s.m.encode()
	if s.zipped = z.EncodeAll(text, nil); len(text) > maxManifest || len(s.zipped) > maxZipped {
		return nil, fmt.Errorf("%w: the list of files has %d bytes: want at most %d; send fewer files at once",
			ErrInput, len(text), maxManifest)
	}
	if o.Compress {
		s.zip = z
	}
	return s, nil
}

func (s *sender) encrypt() bool { return s.o.Key != nil && !s.o.NoEncrypt }

func (s *sender) files() (n int) {
	for i := range s.m.entries {
		if s.m.entries[i].kind != kindDir {
			n++
		}
	}
	return n
}

func (s *sender) seconds() float64 {
	if s.since.IsZero() {
		return 0
	}
	return time.Since(s.since).Seconds()
}

// fail ends the transfer.
func (s *sender) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fatal == nil {
		s.fatal = err
	}
	s.cond.Broadcast()
}

func (s *sender) event(e Event) {
	if s.o.Events == nil {
		return
	}
	s.events.Lock()
	defer s.events.Unlock()
	e.Seconds, e.Schema = time.Since(s.begin).Seconds(), schema
	s.o.Events(e)
}

// waitStart waits for the receivers with which the transfer starts.
func (s *sender) waitStart(ctx context.Context) error {
	late := false
	if s.o.Wait > 0 {
		t := time.AfterFunc(s.o.Wait, func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			late = true
			s.cond.Broadcast()
		})
		defer t.Stop()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		ready, missing := s.present()
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case s.fatal != nil:
			return s.fatal
		case s.o.To > 0 && len(missing) == 0 && ready >= s.o.To, late && ready > 0:
			s.started, s.since = true, time.Now()
			return nil
		case late:
			return fmt.Errorf("%w: none came within %v", ErrIncomplete, s.o.Wait)
		}
		s.cond.Wait()
	}
}

// present returns the number of receivers that are ready, and the expected ones that are not.
func (s *sender) present() (ready int, missing []string) {
	for _, p := range s.peers {
		if p.state == stateReady {
			ready++
		}
	}
	for _, want := range s.o.Receivers {
		if !slices.ContainsFunc(s.peers, func(p *peer) bool { return p.state == stateReady && p.is(want) }) {
			missing = append(missing, want)
		}
	}
	return ready, missing
}

// is reports whether a name or an address means this receiver.
func (p *peer) is(name string) bool {
	host, _, _ := net.SplitHostPort(p.addr)
	return name == p.name || name == host || name == strings.Trim(host, "[]")
}

// end tells all receivers that the transfer has ended, and returns the error of Send.
func (s *sender) end(ctx context.Context, err error) error {
	s.mu.Lock()
	s.ended = true
	if err == nil && s.wrong {
		err = fmt.Errorf("%w on a receiver", ErrVerify)
	}
	complete := 0
	for _, p := range s.peers {
		if p.active() {
			why := fmt.Errorf("%w: %w", errReceiver, cmpErr(err, ErrLost))
			if ctx.Err() != nil {
				why = fmt.Errorf("%w: the sender was interrupted", ErrLost)
			}
			s.loseLocked(p, why)
		}
		if p.state == stateComplete {
			complete++
		}
	}
	n, missing := len(s.peers), []string(nil)
	for _, want := range s.o.Receivers {
		if !slices.ContainsFunc(s.peers, func(p *peer) bool { return p.is(want) }) {
			missing = append(missing, want)
		}
	}
	s.mu.Unlock()
	switch {
	case err != nil:
		return err
	case len(missing) > 0:
		return fmt.Errorf("%w: %s did not come", ErrIncomplete, strings.Join(missing, ", "))
	case complete < n || complete < s.o.To:
		return fmt.Errorf("%w: %d of %d", ErrIncomplete, complete, max(n, s.o.To))
	}
	return nil
}

func cmpErr(err, otherwise error) error {
	if err != nil {
		return err
	}
	return otherwise
}

func (s *sender) summary() *Summary {
	s.mu.Lock()
	defer s.mu.Unlock()
	sum := &Summary{Files: s.files(), Bytes: s.m.size, SentBytes: s.sent, Seconds: time.Since(s.begin).Seconds()}
	for _, p := range s.peers {
		sum.Receivers = append(sum.Receivers, p.result)
	}
	return sum
}

// watch gives up receivers that make no progress.
func (s *sender) watch(ctx context.Context) {
	t := time.NewTicker(min(time.Second, s.o.StallTimeout/4))
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-t.C:
			s.mu.Lock()
			stalled := slices.DeleteFunc(slices.Clone(s.peers), func(p *peer) bool { return !s.stalled(p, now) })
			s.mu.Unlock()
			for _, p := range stalled {
				s.lose(p, fmt.Errorf("%w: no progress for %v", ErrLost, s.o.StallTimeout))
			}
		}
	}
}

// stalled reports whether a receiver makes no progress although everything that was broadcast to it has arrived.
func (s *sender) stalled(p *peer, now time.Time) bool {
	limit := s.o.StallTimeout
	switch {
	case p.state == stateFinishing:
		limit *= 10 // flushing to a slow disk shows no progress
	case p.state != stateReady || p.pendingN == 0 || p.flying > 0:
		return false
	}
	return now.Sub(p.moved) >= limit
}

// pacer spreads bytes over time.
type pacer struct {
	rate float64 // bytes per second; 0: no limit
	next time.Time
}

// wait waits until n more bytes may leave.
func (p *pacer) wait(ctx context.Context, n int) {
	if p.rate <= 0 {
		return
	}
	now := time.Now()
	if p.next.Before(now) {
		p.next = now
	}
	d := p.next.Sub(now)
	p.next = p.next.Add(time.Duration(float64(n) / p.rate * float64(time.Second)))
	if d > 0 {
		select {
		case <-time.After(d):
		case <-ctx.Done():
		}
	}
}

var errEnd = io.EOF // end of a pipe
