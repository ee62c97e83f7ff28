package sim

import (
	"fmt"

	"github.com/allcast/allcast/internal/units"
)

// switchQueue and hostQueue are sizes with a word for "no limit", which is 0 in the simulator's configuration. The
// number 0 on the command line is an error: a queue of 0 bytes would pass nothing.
type (
	switchQueue int64
	hostQueue   int64
)

const (
	lossless  = "lossless"
	unbounded = "unbounded"
)

func (q *switchQueue) UnmarshalText(text []byte) error {
	n, err := parseQueue(string(text), lossless)
	*q = switchQueue(n)
	return err
}

func (q switchQueue) String() string { return formatQueue(int64(q), lossless) }

func (q *hostQueue) UnmarshalText(text []byte) error {
	n, err := parseQueue(string(text), unbounded)
	*q = hostQueue(n)
	return err
}

func (q hostQueue) String() string { return formatQueue(int64(q), unbounded) }

func parseQueue(s, word string) (int64, error) {
	if s == word {
		return 0, nil
	}
	n, err := units.ParseSize(s)
	if err != nil {
		return 0, fmt.Errorf("%q is not a queue: want %s or a size such as 64K, 4M", s, word)
	}
	if n == 0 {
		return 0, fmt.Errorf("a queue of 0 bytes passes nothing: want %s or a size such as 64K, 4M", word)
	}
	return int64(n), nil
}

func formatQueue(n int64, word string) string {
	if n == 0 {
		return word
	}
	return units.Size(n).String()
}
