package paper

import (
	"fmt"
	"slices"
	"strings"
)

// Verdict says whether a claim holds. Greater is better.
type Verdict int

// Verdicts.
const (
	CannotShow Verdict = iota // cannot be shown here
	Miss
	Hit
)

// verdictNames are the names in the registry and in all output, by Verdict.
var verdictNames = []string{"cannot show", "miss", "hit"}

func (v Verdict) String() string {
	if v < 0 || int(v) >= len(verdictNames) {
		return fmt.Sprintf("verdict %d", int(v))
	}
	return verdictNames[v]
}

// MarshalText returns the name of a verdict.
func (v Verdict) MarshalText() ([]byte, error) { return []byte(v.String()), nil }

// UnmarshalText accepts the name of a verdict.
func (v *Verdict) UnmarshalText(text []byte) error {
	i := slices.Index(verdictNames, string(text))
	if i < 0 {
		return fmt.Errorf("unknown verdict %q: want one of %s", text, strings.Join(verdictNames, ", "))
	}
	*v = Verdict(i)
	return nil
}
