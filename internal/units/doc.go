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

// Refused returns the text with which the message begins.
func (e *SyntaxError) Refused() string { return e.Text }

func (e *SyntaxError) Error() string {
	if e.Why == "" {
		return fmt.Sprintf("%q is not a %s: want %s", e.Text, e.Kind, e.Valid)
	}
	return fmt.Sprintf("%q is not a %s (%s): want %s", e.Text, e.Kind, e.Why, e.Valid)
}

// Refuse returns an error that says which text was refused, and why.
func Refuse(text, format string, args ...any) error {
	return &refusal{text, fmt.Errorf(format, args...)}
}

type refusal struct {
	text string
	why  error
}

// Refused returns the text with which the message begins.
func (e *refusal) Refused() string { return e.text }
func (e *refusal) Error() string   { return fmt.Sprintf("%q: %v", e.text, e.why) }
func (e *refusal) Unwrap() error   { return e.why }
