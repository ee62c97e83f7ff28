package units

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Stall says that a rank's processor stops for a while.
type Stall struct {
	Rank int
	At   time.Duration // since the start, not negative
	For  time.Duration // positive
}

// Crash says that a rank stops for good.
type Crash struct {
	Rank int
	At   time.Duration // since the start, not negative
}

const (
	stallValid = "RANK@TIME+DURATION, such as 3@1ms+10ms: rank 3 stops at 1ms for 10ms"
	crashValid = "RANK@TIME, such as 5@100us: rank 5 dies at 100us"
)

// ParseStall reads a stall.
func ParseStall(s string) (Stall, error) {
	bad := func(why string) (Stall, error) {
		return Stall{}, &SyntaxError{Kind: "stall", Text: s, Why: why, Valid: stallValid}
	}
	event, length, ok := strings.Cut(s, "+")
	if !ok {
		return bad("no + and duration")
	}
	rank, at, why := parseRankAt(event)
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
	return Stall{Rank: rank, At: at, For: d}, nil
}

func (s Stall) String() string { return fmt.Sprintf("%d@%v+%v", s.Rank, s.At, s.For) }

// UnmarshalText implements encoding.TextUnmarshaler.
func (s *Stall) UnmarshalText(text []byte) (err error) {
	*s, err = ParseStall(string(text))
	return err
}

// MarshalText implements encoding.TextMarshaler.
func (s Stall) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// ParseCrash reads a crash.
func ParseCrash(s string) (Crash, error) {
	rank, at, why := parseRankAt(s)
	if why != "" {
		return Crash{}, &SyntaxError{Kind: "crash", Text: s, Why: why, Valid: crashValid}
	}
	return Crash{Rank: rank, At: at}, nil
}

func (c Crash) String() string { return fmt.Sprintf("%d@%v", c.Rank, c.At) }

// UnmarshalText implements encoding.TextUnmarshaler.
func (c *Crash) UnmarshalText(text []byte) (err error) {
	*c, err = ParseCrash(string(text))
	return err
}

// MarshalText implements encoding.TextMarshaler.
func (c Crash) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// parseRankAt reads RANK@TIME; why is empty when it could.
func parseRankAt(s string) (rank int, at time.Duration, why string) {
	number, when, ok := strings.Cut(s, "@")
	if !ok {
		return 0, 0, "no @ and time"
	}
	// 32 bits, so that a rank means the same wherever it is read.
	n, err := strconv.ParseInt(number, 10, 32)
	if err != nil || !isDigits(number) {
		return 0, 0, fmt.Sprintf("%q is no rank", number)
	}
	at, why = parseDuration(when)
	return int(n), at, why
}

// parseDuration reads a Go duration without a sign; why is empty when it could.
func parseDuration(s string) (d time.Duration, why string) {
	d, err := time.ParseDuration(s)
	if err != nil || strings.HasPrefix(s, "+") || strings.HasPrefix(s, "-") {
		return 0, fmt.Sprintf("%q is no duration", s)
	}
	return d, ""
}
