package rendezvous

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// What the errors of this package are (errors.Is).
var (
	ErrTimeout   = errors.New("timeout")
	ErrVersion   = errors.New("mismatched versions")
	ErrProgram   = errors.New("mismatched programs")
	ErrDuplicate = errors.New("two ranks with one number")
	ErrSize      = errors.New("mismatched world sizes")
	ErrKey       = errors.New("job key missing or wrong")
	ErrSecure    = errors.New("only some ranks seal what they send")
	ErrLost      = errors.New("rank lost")
	ErrClosed    = errors.New("session closed")
	ErrProtocol  = errors.New("malformed message")
)

// A MissingError says which ranks others waited for in vain. It is an
// ErrTimeout, and an ErrKey if connections were refused for their key.
type MissingError struct {
	Size    int   // of the world
	Missing []int // ascending

	text   string
	causes []error
}

func (e *MissingError) Error() string { return "rendezvous: " + e.text }

// Unwrap returns ErrTimeout and what else is known of the cause.
func (e *MissingError) Unwrap() []error { return e.causes }

// A ConflictError says that ranks contradict each other. It is an ErrVersion,
// ErrProgram, ErrDuplicate, ErrSize or ErrSecure.
type ConflictError struct {
	Ranks []int // whose statements contradict, as they call themselves

	text  string
	cause error
}

func (e *ConflictError) Error() string { return "rendezvous: " + e.text }

func (e *ConflictError) Unwrap() error { return e.cause }

// A RankError names the rank that ended a Join or an Exchange. It is an ErrLost.
type RankError struct {
	Rank int

	text   string
	causes []error
}

func (e *RankError) Error() string { return "rendezvous: " + e.text }

// Unwrap returns ErrLost and, where it happened, the cause.
func (e *RankError) Unwrap() []error { return e.causes }

// lostRoot is what a rank finds out by itself.
func lostRoot(cause error, format string, args ...any) *RankError {
	e := &RankError{Rank: 0, text: fmt.Sprintf(format, args...), causes: []error{ErrLost}}
	if cause != nil {
		e.causes = append(e.causes, cause)
	}
	return e
}

// rankList writes ascending ranks for people: 3, 5-9.
func rankList(ranks []int) string {
	const most = 16 // runs; thousands of numbers help nobody
	var b strings.Builder
	runs := 0
	for i := 0; i < len(ranks); runs++ {
		j := i + 1
		for j < len(ranks) && ranks[j] == ranks[j-1]+1 {
			j++
		}
		if runs > 0 {
			b.WriteString(", ")
		}
		if runs == most {
			fmt.Fprintf(&b, "... (%d in all)", len(ranks))
			break
		}
		b.WriteString(strconv.Itoa(ranks[i]))
		switch {
		case j-i == 2:
			b.WriteString(", " + strconv.Itoa(ranks[j-1]))
		case j-i > 2:
			b.WriteString("-" + strconv.Itoa(ranks[j-1]))
		}
		i = j
	}
	return b.String()
}
