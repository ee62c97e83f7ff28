package units

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Stall says that a rank's processor or an aggregator stops for a while.
type Stall struct {
	Rank       int // or number of the aggregator
	Aggregator bool
	At         time.Duration // since the start, not negative
	For        time.Duration // positive
}

// Crash says that a rank or an aggregator stops for good.
type Crash struct {
	Rank       int // or number of the aggregator
	Aggregator bool
	At         time.Duration // since the start, not negative
}

const (
	stallValid = "RANK@TIME+DURATION, such as 3@1ms+10ms: rank 3 stops at 1ms for 10ms, or aggN for aggregator N"
	crashValid = "RANK@TIME, such as 5@100us: rank 5 dies at 100us, or aggN for aggregator N"

	aggregatorPrefix = "agg"
)

// UnmarshalText implements encoding.TextUnmarshaler.
func (s *Stall) UnmarshalText(text []byte) error {
	bad := func(why string) error {
		return &SyntaxError{Kind: "stall", Text: string(text), Why: why, Valid: stallValid}
	}
	event, length, ok := strings.Cut(string(text), "+")
	if !ok {
		return bad("no + and duration")
	}
	rank, aggregator, at, why := parseRankAt(event)
	if why != "" {
		return bad(why)
	}
	d, why := parseDuration(length)
	if why != "" {
		return bad(why)
	}
	if d == 0 {
		return bad("a stall of no length")
	}
	*s = Stall{Rank: rank, Aggregator: aggregator, At: at, For: d}
	return nil
}

func (s Stall) String() string {
	return fmt.Sprintf("%s@%v+%v", victim(s.Rank, s.Aggregator), s.At, s.For)
}

// UnmarshalText implements encoding.TextUnmarshaler.
func (c *Crash) UnmarshalText(text []byte) error {
	rank, aggregator, at, why := parseRankAt(string(text))
	if why != "" {
		return &SyntaxError{Kind: "crash", Text: string(text), Why: why, Valid: crashValid}
	}
	*c = Crash{Rank: rank, Aggregator: aggregator, At: at}
	return nil
}

func (c Crash) String() string { return fmt.Sprintf("%s@%v", victim(c.Rank, c.Aggregator), c.At) }

// victim names a rank or an aggregator.
func victim(number int, aggregator bool) string {
	if aggregator {
		return aggregatorPrefix + strconv.Itoa(number)
	}
	return strconv.Itoa(number)
}

// parseRankAt parses RANK@TIME or aggN@TIME; why is empty if that succeeds.
func parseRankAt(s string) (rank int, aggregator bool, at time.Duration, why string) {
	number, when, ok := strings.Cut(s, "@")
	if !ok {
		return 0, false, 0, "no @ and time"
	}
	number, aggregator = strings.CutPrefix(number, aggregatorPrefix)
	// 32 bits, so that all platforms accept the same ranks.
	n, err := strconv.ParseInt(number, 10, 32)
	if err != nil || !IsDigits(number) {
		return 0, false, 0, fmt.Sprintf("%q is no rank", number)
	}
	at, why = parseDuration(when)
	return int(n), aggregator, at, why
}

// parseDuration parses a Go duration without a sign; why is empty if that succeeds.
func parseDuration(s string) (d time.Duration, why string) {
	d, err := time.ParseDuration(s)
	if err != nil || strings.HasPrefix(s, "+") || strings.HasPrefix(s, "-") {
		return 0, fmt.Sprintf("%q is no duration", s)
	}
	return d, ""
}
