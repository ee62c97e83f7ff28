// Package units reads and writes the quantities of the command line: sizes,
// rates, probabilities, and the faults of a simulated run.
//
// Every type implements encoding.TextUnmarshaler, so a flag library can fill
// it, and encoding.TextMarshaler, and what it writes it reads back unchanged.
// The grammars are strict: a spelling that is not documented is refused rather
// than guessed at, because "4KB" means 4000 to some and 4096 to others.
package units

import "fmt"

// SyntaxError says which text was refused and what would have been accepted.
type SyntaxError struct {
	Kind  string // what was being read: "size", "rate", ...
	Text  string // what was given
	Why   string // what is wrong with it, when more than its form
	Valid string // what is accepted
}

func (e *SyntaxError) Error() string {
	if e.Why == "" {
		return fmt.Sprintf("%q is not a %s: want %s", e.Text, e.Kind, e.Valid)
	}
	return fmt.Sprintf("%q is not a %s (%s): want %s", e.Text, e.Kind, e.Why, e.Valid)
}
