package transfer

import (
	"bytes"
	"errors"
	"io"
	"net"
	"path/filepath"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"
)

// smallManifest describes a file of one segment and a half.
func smallManifest(t *testing.T) *manifest {
	t.Helper()
	m := &manifest{segment: minSegment, entries: []entry{{path: "file", mode: 0o644, size: minSegment * 3 / 2}}}
	if err := m.index(); err != nil {
		t.Fatal(err)
	}
	return m
}

// tell connects a receiver to a sender that only sends these messages, and returns the receiver's error.
func tell(t *testing.T, to target, ms ...message) error {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = ln.Close() }()
	conn, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	far, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = far.Close() }()
	go func() { _, _ = io.Copy(io.Discard, far) }()
	o := ReceiveOptions{Dir: "unused", From: "unused"}
	if err := o.defaults(); err != nil {
		t.Fatal(err)
	}
	if err := newControl(far, testTimeout).send(ms...); err != nil {
		t.Fatal(err)
	}
	return newSession(t.Context(), &receiver{o: o, t: to, start: time.Now()}, newControl(conn, testTimeout)).run()
}

// introduction returns the messages with which a sender begins.
func introduction(t *testing.T, m *manifest) []message {
	t.Helper()
	z, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = z.Close() }()
	return []message{
		{Kind: msgWelcome, Timeout: testTimeout, Window: window, Lag: 4},
		{Kind: msgManifest, Value: z.EncodeAll(m.encode(), nil), Last: true},
	}
}

// A sender that breaks the protocol is refused: the receiver neither panics, nor hangs, nor says that it is complete.
func TestHostileSender(t *testing.T) {
	m := smallManifest(t)
	sum := make([]byte, len(hash{}))
	have := message{Kind: msgHave}
	join := message{Kind: msgJoin, Group: 1, Rank: 1, Size: 2, Value: make([]byte, 32)}
	cast := func(seg int, n int64) message {
		return message{Kind: msgCast, Group: 1, Segment: seg, Hash: sum, Length: n, Wire: min(n, 1), Algo: "chain"}
	}
	for name, ms := range map[string][]message{
		"bye":                     {have, {Kind: msgBye}},
		"bye at once":             {{Kind: msgBye}},
		"finish before have":      {{Kind: msgFinish, Length: m.size}},
		"finish without data":     {have, {Kind: msgFinish, Length: m.size}},
		"finish of another size":  {have, {Kind: msgFinish, Length: 0}},
		"have that is not there":  {{Kind: msgHave, Value: []byte{1, 0, 0, 0, 0, 0, 0, 0}}},
		"have out of range":       {{Kind: msgHave, Value: []byte{0, 0, 0, 0, 0, 0, 0, 1}}},
		"have twice":              {have, have},
		"welcome twice":           {{Kind: msgWelcome, Timeout: testTimeout, Window: 1, Lag: 1}},
		"manifest twice":          {introduction(t, m)[1]},
		"join before have":        {join},
		"join twice":              {have, join, join},
		"join again":              {have, join, {Kind: msgEnd, Group: 1}, join},
		"join with a wrong rank":  {have, {Kind: msgJoin, Group: 1, Rank: 2, Size: 2, Value: make([]byte, 32)}},
		"join with a huge size":   {have, {Kind: msgJoin, Group: 1, Rank: 1, Size: 1 << 30, Value: make([]byte, 32)}},
		"cast without a group":    {have, cast(0, minSegment)},
		"cast out of range":       {have, join, cast(2, minSegment)},
		"cast far out of range":   {have, join, cast(maxSegments, minSegment)},
		"cast of a wrong length":  {have, join, cast(1, minSegment)},
		"cast that is too short":  {have, join, cast(0, 1)},
		"cast without data":       {have, join, cast(0, 0)},
		"unknown kind of message": {{Kind: "other"}},
	} {
		t.Run(name, func(t *testing.T) {
			dst := t.TempDir()
			d, err := openDir(dst, false)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = d.close() }()
			if err := tell(t, d, append(introduction(t, m), ms...)...); !errors.Is(err, ErrLost) {
				t.Error(err)
			}
			if names, err := filepath.Glob(filepath.Join(dst, "file")); err != nil || names != nil {
				t.Errorf("%v, %v", names, err)
			}
		})
	}
	for name, welcome := range map[string]message{
		"no time":       {Window: 1, Lag: 1},
		"tiny timeout":  {Timeout: 3, Window: 1, Lag: 1},
		"huge timeout":  {Timeout: 1 << 62, Window: 1, Lag: 1},
		"huge window":   {Timeout: testTimeout, Window: 1 << 40, Lag: 1},
		"huge lag":      {Timeout: testTimeout, Window: 1, Lag: 1 << 20},
		"negative lag":  {Timeout: testTimeout, Window: 1, Lag: -1},
		"no window":     {Timeout: testTimeout, Lag: 1},
		"negative size": {Timeout: -1, Window: 1, Lag: 1},
	} {
		welcome.Kind = msgWelcome
		if err := tell(t, &writerTarget{w: io.Discard}, welcome); !errors.Is(err, ErrLost) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// The end of a pipe must fit the segments that arrived.
func TestEndOfPipe(t *testing.T) {
	const full = minSegment
	m := &manifest{segment: full, stream: true, entries: []entry{file("stdin")}}
	for _, c := range []struct {
		lengths []int64 // of the segments; 0: did not arrive
		size    int64
		ok      bool
	}{
		{nil, 0, true},
		{nil, 1, false},
		{[]int64{full}, full, true},
		{[]int64{full}, full - 1, false},
		{[]int64{full}, 0, false},
		{[]int64{full, 5}, full + 5, true},
		{[]int64{full, 5}, full + 6, false},
		{[]int64{full, 5}, full, false},
		{[]int64{5}, full, false},
		{[]int64{0, 5}, full + 5, false},
		{[]int64{full, 0, 5}, 2*full + 5, false},
		{[]int64{5, full}, full + 5, false},
		{[]int64{full, full}, full, false},
	} {
		s := &session{m: m, short: -1}
		for seg, n := range c.lengths {
			if n > 0 {
				if err := s.record(message{Segment: seg, Length: n}); err != nil {
					t.Fatal(err)
				}
			}
		}
		if err := s.complete(c.size); (err == nil) != c.ok {
			t.Errorf("%v, %d bytes: %v", c.lengths, c.size, err)
		}
	}
	s := &session{m: m, short: -1}
	if err := errors.Join(s.record(message{Segment: 0, Length: 5}), s.record(message{Segment: 1, Length: 5})); err == nil {
		t.Error("two short segments: no error")
	}
}

// A receiver that was lost before it wrote anything begins again, without what it held.
func TestStdoutBeginsAgain(t *testing.T) {
	var out bytes.Buffer
	w := &writerTarget{w: &out, limit: 2 * minSegment, held: map[int][]byte{}}
	m := smallManifest(t)
	for range 3 {
		if _, err := w.prepare(m); err != nil {
			t.Fatal(err)
		}
		if err := w.write(1, []byte("later"), hash{}); err != nil {
			t.Fatal(err)
		}
	}
	if w.holding != 5 {
		t.Errorf("%d bytes are held, want 5", w.holding)
	}
}

// A receiver that reports what it was not sent is not complete.
func TestHostileReceiver(t *testing.T) {
	s := &sender{m: smallManifest(t), total: 2, started: true}
	p := &peer{state: stateReady}
	for name, m := range map[string]message{
		"stored, not sent":     {Kind: msgStored, Segment: 1},
		"stored, out of range": {Kind: msgStored, Segment: 7},
		"complete":             {Kind: msgComplete},
		"claims":               {Kind: msgClaims, Last: true},
	} {
		if _, err := s.handle(t.Context(), p, m); err == nil || p.have.count() > 0 || p.state != stateReady {
			t.Errorf("%s: %v, state %d", name, err, p.state)
		}
	}
}
