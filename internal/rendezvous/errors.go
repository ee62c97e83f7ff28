package rendezvous

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// Kinds of errors, for errors.Is.
var (
	ErrTimeout   = errors.New("timeout")
	ErrVersion   = errors.New("mismatched versions")
	ErrProgram   = errors.New("mismatched programs")
	ErrDuplicate = errors.New("two ranks with one number")
	ErrSize      = errors.New("mismatched world sizes")
	ErrKey       = errors.New("job key missing or wrong")
	ErrSecure    = errors.New("only some ranks seal their traffic")
	ErrLost      = errors.New("rank lost")
	ErrClosed    = errors.New("session closed")
	ErrProtocol  = errors.New("malformed message")
)

// An Error says why a Join or an Exchange failed, with the same text on all ranks that rank 0 could tell. Ranks
// that did not come in time make it an ErrTimeout, and also an ErrKey if rank 0 has refused connections for
// their key. A rank that failed makes it an ErrLost. Ranks that contradict each other make it an ErrVersion,
// ErrProgram, ErrDuplicate, ErrSize or ErrSecure.
type Error struct {
	Ranks []int // ranks to blame, by their own numbers

	text   string
	causes []error
}

func (e *Error) Error() string { return "rendezvous: " + e.text }

// Unwrap returns the kinds and, on the rank that saw it, the cause.
func (e *Error) Unwrap() []error { return e.causes }

// rankList formats ascending ranks for a message: 3, 5-9.
func rankList(ranks []int) string {
	const maxRuns = 16
	var runs []string
	for i := 0; i < len(ranks); {
		j := i + 1
		for j < len(ranks) && ranks[j] == ranks[j-1]+1 {
			j++
		}
		run := strconv.Itoa(ranks[i])
		switch {
		case j-i == 2:
			run += ", " + strconv.Itoa(ranks[j-1])
		case j-i > 2:
			run += "-" + strconv.Itoa(ranks[j-1])
		}
		runs = append(runs, run)
		i = j
	}
	if len(runs) > maxRuns {
		runs = append(runs[:maxRuns], fmt.Sprintf("... (%d in all)", len(ranks)))
	}
	return strings.Join(runs, ", ")
}
