package transfer

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/klauspost/compress/zstd"
	"lukechampine.com/blake3"
)

// storeWorkers is the number of goroutines that verify and write segments.
const storeWorkers = 2

// maxWrong is the number of times that a segment may arrive with wrong data.
const maxWrong = 3

// session is one connection of a receiver to the sender.
type session struct {
	r      *receiver
	c      *control
	ctx    context.Context
	cancel context.CancelCauseFunc
	wg     sync.WaitGroup // workers
	member sync.WaitGroup // groups

	m      *manifest
	zipped bytes.Buffer // manifest, as it arrives
	groups map[int]*membership
	last   int // number of the last group
	work   chan job

	claimed  bitset // segments on disk, with their hashes sent
	accepted bool   // the sender has confirmed claims
	finished bool   // the sender has sent everything

	mu    sync.Mutex
	got   bitset                 // segments that are on disk
	short int                    // pipe: number of the segment that is not full, or -1
	tail  int64                  // pipe: its length
	calls map[uint64]chan []byte // gets of the store
	seq   uint64
	free  [][]byte // buffers
	wrong map[int]int
	done  bool // complete was sent

	failure error // of this receiver
}

// job is a segment that has arrived.
type job struct {
	cast message
	buf  []byte
}

func newSession(ctx context.Context, r *receiver, c *control) *session {
	s := &session{
		r: r, c: c, groups: map[int]*membership{}, calls: map[uint64]chan []byte{}, wrong: map[int]int{}, short: -1,
	}
	s.ctx, s.cancel = context.WithCancelCause(ctx)
	return s
}

// run returns nil when everything is in place. All goroutines have ended then.
func (s *session) run() error {
	stop := context.AfterFunc(s.ctx, func() { _ = s.c.conn.Close() })
	err := s.c.send(message{
		Kind: msgHello, Version: version, ID: s.r.t.id(), Name: s.r.o.Name, Ordered: s.r.t.ordered(),
	})
	for err == nil {
		var m message
		if m, err = s.c.receive(); err == nil {
			var end bool
			if end, err = s.handle(m); end {
				err = errors.New("the sender has ended the transfer before everything was in place")
			}
		}
	}
	cause := context.Cause(s.ctx)
	s.cancel(err)
	stop()
	_ = s.c.conn.Close()
	for _, g := range s.groups {
		g.end()
	}
	s.member.Wait() // they hand segments to the workers
	if s.work != nil {
		close(s.work)
	}
	s.wait()
	s.mu.Lock()
	done, failure := s.done, s.failure
	s.mu.Unlock()
	var own *receiverError
	switch {
	case done:
		return nil
	case failure != nil:
		return failure
	case cause != nil:
		return cause // the caller's context
	case errors.As(err, &own):
		return own.err
	}
	return fmt.Errorf("%w: %w", ErrLost, err)
}

// wait waits for all goroutines. One that writes to a blocked pipe is left behind.
func (s *session) wait() {
	if !s.r.t.ordered() {
		s.wg.Wait()
		return
	}
	ended := make(chan struct{})
	go func() { s.wg.Wait(); close(ended) }()
	select {
	case <-ended:
	case <-time.After(time.Second):
	}
}

// receiverError ends the receiver, not only the connection.
type receiverError struct{ err error }

func (e *receiverError) Error() string { return e.err.Error() }
func (e *receiverError) Unwrap() error { return e.err }

// fail tells the sender why this receiver gives up.
func (s *session) fail(err error) {
	s.mu.Lock()
	if s.failure == nil {
		s.failure = err
	}
	s.mu.Unlock()
	_ = s.c.send(message{Kind: msgFail, Error: err.Error(), Wrong: errors.Is(err, ErrVerify)})
	s.cancel(&receiverError{err})
}

// handle handles a message. It returns true at the end of the session.
func (s *session) handle(m message) (end bool, err error) {
	switch m.Kind {
	case msgPing:
	case msgWelcome:
		if m.Timeout < minTimeout || m.Timeout > maxTimeout || m.Window < 1 || m.Window > maxWindow || m.Lag < 1 ||
			m.Lag > maxLag || s.work != nil {
			return false, errors.New("the sender's welcome is not valid")
		}
		s.c.setIdle(m.Timeout)
		s.wg.Go(func() { s.c.ping(s.ctx.Done()) })
		s.work = make(chan job, m.Lag+2*m.Window)
		for range storeWorkers {
			s.wg.Go(s.store)
		}
	case msgManifest:
		if s.work == nil || s.m != nil || s.zipped.Len()+len(m.Value) > maxZipped {
			return false, errors.New("a manifest at the wrong time")
		}
		s.zipped.Write(m.Value)
		if m.Last {
			return false, s.manifest()
		}
	case msgHave:
		if s.m == nil || s.accepted {
			return false, errors.New("a list of segments at the wrong time")
		}
		return false, s.have(m.Value)
	case msgValue:
		s.mu.Lock()
		call := s.calls[m.Seq]
		delete(s.calls, m.Seq)
		s.mu.Unlock()
		if call != nil {
			call <- m.Value
		}
	case msgJoin:
		if !s.accepted || m.Group <= s.last || len(s.groups) >= maxGroups || m.Rank < 1 || m.Rank >= m.Size ||
			m.Size > maxReceivers+1 {
			return false, fmt.Errorf("an invitation to group %d that is not valid", m.Group)
		}
		s.last = m.Group
		s.join(m)
	case msgCast:
		g := s.groups[m.Group]
		if g == nil || !s.accepted || s.finished && !m.Discard || !s.valid(m) {
			return false, fmt.Errorf("a broadcast of segment %d that is not valid", m.Segment)
		}
		select {
		case g.casts <- m:
		case <-s.ctx.Done():
		}
	case msgEnd:
		if g := s.groups[m.Group]; g != nil {
			g.end()
			delete(s.groups, m.Group)
		}
	case msgFinish:
		if !s.accepted || s.finished {
			return false, errors.New("an end at the wrong time")
		}
		if err := s.complete(m.Length); err != nil {
			return false, err
		}
		s.finished = true
		s.wg.Go(func() { s.finish(m.Length) })
	case msgBye:
		switch {
		case m.Error == "":
			return true, nil
		case m.Again:
			return false, errors.New(m.Error)
		}
		return false, &receiverError{fmt.Errorf("%w: the sender: %s", ErrRefused, m.Error)}
	default:
		return false, fmt.Errorf("a message of an unknown kind, %.20q", m.Kind)
	}
	return false, nil
}

// Limits of what a sender may ask for.
const (
	minTimeout = 100 * time.Millisecond
	maxTimeout = 24 * time.Hour
	maxWindow  = 64
	maxLag     = 1 << 16 // segments
	maxGroups  = 4       // at a time
)

// valid reports whether a broadcast fits the manifest.
func (s *session) valid(m message) bool {
	switch {
	case m.Wire < 1 || m.Wire > m.Length || len(m.Hash) != len(hash{}):
		return false
	case s.m.stream:
		return m.Segment < maxSegments && m.Length <= s.m.segment
	}
	return m.Segment < s.m.segments() && m.Length == s.m.length(m.Segment)
}

// complete returns an error unless every segment of the data is on disk.
func (s *session) complete(size int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	total := s.m.segments()
	if s.m.stream {
		if size > maxSegments*s.m.segment {
			return fmt.Errorf("a pipe of %d bytes is too long", size)
		}
		total = int((size + s.m.segment - 1) / s.m.segment)
		tail := size - int64(max(0, total-1))*s.m.segment
		full := tail == s.m.segment || total == 0
		if full != (s.short < 0) || !full && (s.short != total-1 || s.tail != tail) {
			return fmt.Errorf("the sender has ended after %d bytes, which are not those that arrived", size)
		}
	} else if size != s.m.size {
		return fmt.Errorf("the sender has ended after %d of %d bytes", size, s.m.size)
	}
	for seg := range total {
		if !s.got.has(seg) {
			return fmt.Errorf("the sender has ended, and segment %d is missing", seg)
		}
	}
	if n := s.got.count(); n != total {
		return fmt.Errorf("the sender has ended after %d segments, and has sent %d", total, n)
	}
	return nil
}

// ErrRefused means that the sender has given this receiver up, or failed.
var ErrRefused = errors.New("the transfer failed")

// manifest decodes the manifest and claims what is on disk.
func (s *session) manifest() error {
	d, err := zstd.NewReader(nil, zstd.WithDecoderMaxMemory(maxManifest), zstd.WithDecoderConcurrency(1))
	if err != nil {
		return err
	}
	defer d.Close()
	text, err := d.DecodeAll(s.zipped.Bytes(), nil)
	s.zipped = bytes.Buffer{}
	if err == nil {
		s.m, err = decodeManifest(text)
	}
	var claims []claim
	if err == nil {
		claims, err = s.r.t.prepare(s.m)
	}
	if err != nil {
		s.fail(err)
		return &receiverError{err}
	}
	s.r.size, s.r.files = s.m.size, 0
	for i := range s.m.entries {
		if s.m.entries[i].kind != kindDir {
			s.r.files++
		}
	}
	for _, c := range claims {
		if c.sum != (hash{}) {
			s.claimed.set(c.seg)
		}
	}
	return s.c.send(packClaims(claims)...)
}

const claimSize = 4 + len(hash{})

// packClaims returns the messages that carry claims.
func packClaims(claims []claim) (ms []message) {
	var b []byte
	for _, c := range claims {
		b = append(binary.LittleEndian.AppendUint32(b, uint32(c.seg)), c.sum[:]...)
		if len(b) > maxPart-claimSize {
			ms, b = append(ms, message{Kind: msgClaims, Value: b}), nil
		}
	}
	return append(ms, message{Kind: msgClaims, Value: b, Last: true})
}

// unpackClaims returns the claims of a message.
func unpackClaims(b []byte) ([]claim, error) {
	if len(b)%claimSize != 0 {
		return nil, errors.New("claims of a wrong length")
	}
	claims := make([]claim, 0, len(b)/claimSize)
	for ; len(b) > 0; b = b[claimSize:] {
		claims = append(claims, claim{int(binary.LittleEndian.Uint32(b)), hash(b[4:claimSize])})
	}
	return claims, nil
}

// have gets the claims that the sender confirmed, as a bitset.
func (s *session) have(b []byte) error {
	var have bitset
	for ; len(b) >= 8; b = b[8:] {
		have = append(have, binary.LittleEndian.Uint64(b))
	}
	s.r.resumed = 0
	for seg := range 64 * len(have) {
		if !have.has(seg) {
			continue
		}
		if !s.claimed.has(seg) {
			return fmt.Errorf("the sender confirms segment %d, which this receiver does not have", seg)
		}
		s.r.resumed += s.m.length(seg)
	}
	s.accepted, s.got = true, slices.Clone(have)
	s.r.stored.Store(s.r.resumed)
	if err := s.r.t.accept(have); err != nil {
		s.fail(err)
		return &receiverError{err}
	}
	s.r.event(Event{Event: EventStart, Files: s.r.files, Total: s.m.size, Resumed: s.r.resumed})
	return s.c.send(message{Kind: msgReady})
}

// buffer returns a buffer for a segment. The sender limits how many are in use.
func (s *session) buffer() []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := len(s.free); n > 0 {
		b := s.free[n-1]
		s.free = s.free[:n-1]
		return b
	}
	return make([]byte, s.m.segment)
}

func (s *session) put(b []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.free = append(s.free, b[:cap(b)])
}

// store verifies and writes segments.
func (s *session) store() {
	d, err := zstd.NewReader(nil, zstd.WithDecoderMaxMemory(maxSegment), zstd.WithDecoderConcurrency(1))
	if err != nil {
		s.fail(err)
		return
	}
	defer d.Close()
	var plain []byte
	for j := range s.work {
		if s.ctx.Err() != nil {
			continue
		}
		data := j.buf[:j.cast.Wire]
		if j.cast.Wire < j.cast.Length {
			plain, err = d.DecodeAll(data, plain[:0])
			data = plain
		}
		s.storeOne(j.cast, data, err)
		s.put(j.buf)
		err = nil
	}
}

func (s *session) storeOne(cast message, data []byte, err error) {
	sum := hash(cast.Hash)
	if err != nil || int64(len(data)) != cast.Length || blake3.Sum256(data) != sum {
		s.mu.Lock()
		s.wrong[cast.Segment]++
		n := s.wrong[cast.Segment]
		s.mu.Unlock()
		if n >= maxWrong {
			s.fail(fmt.Errorf("%w: segment %d arrived with wrong data %d times", ErrVerify, cast.Segment, n))
			return
		}
		_ = s.c.send(message{Kind: msgMissed, Segment: cast.Segment})
		return
	}
	if err := s.r.t.write(cast.Segment, data, sum); err != nil {
		s.fail(err)
		return
	}
	if err := s.record(cast); err != nil {
		s.fail(err)
		return
	}
	s.r.event(Event{Event: EventProgress, Bytes: s.r.stored.Add(cast.Length), Total: s.r.size})
	_ = s.c.send(message{Kind: msgStored, Segment: cast.Segment, Bytes: s.r.received.Load()})
}

// record remembers a segment that is on disk. Only the last one of a pipe may be short.
func (s *session) record(cast message) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.got.set(cast.Segment)
	if s.m.stream && cast.Length < s.m.segment {
		if s.short >= 0 && (s.short != cast.Segment || s.tail != cast.Length) {
			return fmt.Errorf("segments %d and %d of the pipe are both short", s.short, cast.Segment)
		}
		s.short, s.tail = cast.Segment, cast.Length
	}
	return nil
}

// finish puts everything in place and tells the sender.
func (s *session) finish(size int64) {
	s.r.size = size
	if err := s.r.t.finish(size); err != nil {
		s.fail(err)
		return
	}
	s.mu.Lock()
	s.done = true
	s.mu.Unlock()
	_ = s.c.send(message{Kind: msgComplete, Bytes: s.r.received.Load()})
}
