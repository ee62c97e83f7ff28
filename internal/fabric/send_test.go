package fabric

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/allcast/allcast/internal/wire"
)

// fakeSender takes as much as it has room for, and completes it when Await is called.
type fakeSender struct {
	room, perAwait  int // datagrams: room now, and what each Await completes
	sent, completed uint64
	err             error
}

func (s *fakeSender) Send(b *Batch) (int, error) {
	n := min(len(b.Headers), s.room)
	s.room -= n
	s.sent += uint64(n)
	switch {
	case n == len(b.Headers):
		return n, nil
	case s.err != nil:
		return n, s.err
	}
	return n, ErrBusy
}

func (s *fakeSender) Completed() uint64 { return s.completed }

func (s *fakeSender) Await(time.Duration) {
	time.Sleep(time.Millisecond)
	n := min(uint64(s.perAwait), s.sent-s.completed)
	s.completed += n
	s.room += int(n)
}

// SendAll returns nil only if the payloads' memory is free again.
func TestSendAll(t *testing.T) {
	down := errors.New("the link is down")
	for _, c := range []struct {
		name string
		s    fakeSender
		want error
		text string
		sent uint64
	}{
		{name: "at once", s: fakeSender{room: 5, perAwait: 5}, sent: 5},
		{name: "in parts", s: fakeSender{room: 2, perAwait: 1}, sent: 5},
		{name: "no room", s: fakeSender{room: 3}, want: ErrBusy, sent: 3},
		{name: "not completed", s: fakeSender{room: 5}, want: ErrBusy, text: "5 datagrams that it took", sent: 5},
		{name: "fails", s: fakeSender{room: 3, err: down}, want: down, sent: 3},
	} {
		b := Batch{Headers: make([]wire.Header, 5), Payloads: make([][]byte, 5)}
		var err error
		synctest.Test(t, func(*testing.T) { err = SendAll(&c.s, &b, 20*time.Millisecond) })
		if !errors.Is(err, c.want) || err != nil && !strings.Contains(err.Error(), c.text) {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
		}
		if c.s.sent != c.sent || err == nil && c.s.completed != c.sent {
			t.Errorf("%s: %d datagrams were sent, and %d have completed", c.name, c.s.sent, c.s.completed)
		}
	}
}
