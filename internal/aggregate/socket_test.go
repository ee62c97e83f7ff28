package aggregate

import (
	"errors"
	"slices"
	"testing"
	"time"
)

// Without room, the rest of a train is dropped. After other errors, the next datagram may fare better.
func TestSendEach(t *testing.T) {
	other := errors.New("too large")
	for _, c := range []struct {
		results []error
		sent    int
		first   error
		calls   int
	}{
		{[]error{nil, nil, nil}, 3, nil, 3},
		{[]error{nil, errNoRoom, nil}, 1, errNoRoom, 2},
		{[]error{ErrClosed, nil, nil}, 0, ErrClosed, 1},
		{[]error{other, nil, errNoRoom}, 1, other, 3},
	} {
		var sizes []int
		sent, err := (&socket{}).sendEach(make([]byte, 25), 10, func(d []byte) error {
			sizes = append(sizes, len(d))
			return c.results[len(sizes)-1]
		})
		if sent != c.sent || err != c.first || !slices.Equal(sizes, []int{10, 10, 5}[:c.calls]) {
			t.Errorf("%v: %d sent, %v, sizes %v", c.results, sent, err, sizes)
		}
	}
}

// A job attaches at the parent at most ten times per second. Attempts that have not begun do not add up.
func TestAscentPause(t *testing.T) {
	j, start := &job{}, time.Unix(1e9, 0)
	ms := func(n int) time.Duration { return time.Duration(n) * time.Millisecond }
	for _, c := range []struct{ at, pause int }{
		{0, 0}, {10, 90}, {20, 80}, {99, 1}, {150, 50}, {160, 40}, {1000, 0}, {1099, 1}, {1300, 0},
	} {
		if got := j.ascentPause(start.Add(ms(c.at))); got != ms(c.pause) {
			t.Errorf("at %d ms: a pause of %v, want %d ms", c.at, got, c.pause)
		}
	}
}
