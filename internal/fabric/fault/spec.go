// Package fault makes the unreliable side of any network lose, duplicate, reorder and damage datagrams,
// for tests. The same seed gives the same faults.
package fault

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/allcast/allcast/internal/units"
)

// A Spec says which faults to inject. The zero Spec injects none.
type Spec struct {
	Drop, Dup, Reorder float64 // probabilities per datagram and receiver
	Corrupt            float64 // probability that a bit is flipped
	Seed               uint64
}

// Parse reads the value of ALLCAST_FAULT: drop=1%,dup=1%,reorder=5%,corrupt=1%,seed=7.
func Parse(s string) (Spec, error) {
	var spec Spec
	if s == "" {
		return spec, nil
	}
	faults := map[string]*float64{
		"drop": &spec.Drop, "dup": &spec.Dup, "reorder": &spec.Reorder, "corrupt": &spec.Corrupt,
	}
	for _, field := range strings.Split(s, ",") {
		name, value, ok := strings.Cut(strings.TrimSpace(field), "=")
		if !ok {
			return Spec{}, units.Refuse(field, "want name=value: drop, dup, reorder, corrupt or seed, as in "+
				"drop=1%%,dup=1%%,reorder=5%%,seed=7")
		}
		var err error
		if p := faults[name]; p != nil {
			var parsed units.Probability
			parsed, err = units.ParseProbability(value)
			*p = float64(parsed)
		} else if name == "seed" {
			spec.Seed, err = strconv.ParseUint(value, 10, 64)
		} else {
			return Spec{}, fmt.Errorf("unknown fault %q: want drop, dup, reorder, corrupt or seed", name)
		}
		if err != nil {
			return Spec{}, fmt.Errorf("%s: %w", name, err)
		}
	}
	const rounding = 1e-9
	if spec.Drop+spec.Dup+spec.Reorder+spec.Corrupt > 1+rounding {
		return Spec{}, errors.New("drop, dup, reorder and corrupt are more than 100% together: only one of them " +
			"happens to a datagram")
	}
	return spec, nil
}
