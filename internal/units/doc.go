// Package units reads and writes the quantities of the command line: sizes, rates, probabilities, and the faults
// of a simulated run.
//
// Flag libraries fill the types through encoding.TextUnmarshaler. Every type parses its own String to the same
// value. The grammars are strict: a spelling that is not documented is an error, not a guess, because "4KB" means
// 4000 to some and 4096 to others.
package units

import "fmt"

// SyntaxError says which text was refused and which forms are valid.
type SyntaxError struct {
	Kind  string // name of the quantity: "size", "rate", ...
	Text  string // refused text
	Why   string // reason, if it is not only the form
	Valid string // valid forms
}

func (e *SyntaxError) Error() string {
	if e.Why == "" {
		return fmt.Sprintf("%q is not a %s: want %s", e.Text, e.Kind, e.Valid)
	}
	return fmt.Sprintf("%q is not a %s (%s): want %s", e.Text, e.Kind, e.Why, e.Valid)
}
