package units

import (
	"strconv"
	"strings"
)

// Probability is a number from 0 to 1.
type Probability float64

const probabilityValid = "a number from 0 to 1 or from 0% to 100%, such as 0.001 or 0.1%"

// ParseProbability parses a probability.
func ParseProbability(s string) (Probability, error) {
	number, percent := strings.CutSuffix(s, "%")
	if _, _, ok := splitDecimal(number); !ok {
		return 0, &SyntaxError{Kind: "probability", Text: s, Valid: probabilityValid}
	}
	if percent {
		// Scaled as text: 0.1% is then the float nearest to 0.001, the same as "0.001".
		number += "e-2"
	}
	p, err := strconv.ParseFloat(number, 64)
	if err != nil || p > 1 {
		return 0, &SyntaxError{Kind: "probability", Text: s, Why: "above 1", Valid: probabilityValid}
	}
	return Probability(p), nil
}

// String writes the probability as a plain number.
func (p Probability) String() string { return strconv.FormatFloat(float64(p), 'f', -1, 64) }

// UnmarshalText implements encoding.TextUnmarshaler.
func (p *Probability) UnmarshalText(text []byte) (err error) {
	*p, err = ParseProbability(string(text))
	return err
}

// MarshalText implements encoding.TextMarshaler.
func (p Probability) MarshalText() ([]byte, error) { return []byte(p.String()), nil }
