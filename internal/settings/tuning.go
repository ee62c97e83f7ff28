package settings

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/allcast/allcast/internal/p2p"
	"github.com/allcast/allcast/internal/units"
	"github.com/allcast/allcast/internal/wire"
)

// Names of algorithms that no plan of package p2p stands for.
const (
	AlgorithmAuto = "auto"  // picks another one
	algorithmCast = "mcast" // package mcast; engine.Multicast
	algorithmInc  = "inc"   // package inc; engine.Inc
)

// Rules choose algorithms by operation and size. The first rule that matches a call applies.
type Rules []Rule

// A Rule is one entry of a tuning: operation[:from-to]:algorithm[,algorithm...].
type Rule struct {
	Kind       wire.CallKind
	From, To   int64    // bytes, inclusive
	Algorithms []string // in order of preference; the first that works here is used
}

// For returns the rule for a call of the given size, or nil.
func (r Rules) For(k wire.CallKind, bytes int64) *Rule {
	i := slices.IndexFunc(r, func(r Rule) bool { return r.Kind == k && bytes >= r.From && bytes <= r.To })
	if i < 0 {
		return nil
	}
	return &r[i]
}

// Operation finds an operation by its name; 0 if there is none.
func Operation(name string) wire.CallKind {
	for _, k := range wire.CallKinds() {
		if k.String() == name {
			return k
		}
	}
	return 0
}

// algorithms lists the algorithms of each operation.
var algorithms = func() map[wire.CallKind][]string {
	all := map[wire.CallKind][]string{}
	for _, k := range wire.CallKinds() {
		all[k] = p2p.Algorithms(k)
		if k == wire.Broadcast || k == wire.Allgather {
			all[k] = append([]string{algorithmCast}, all[k]...)
		}
		if k == wire.ReduceScatter || k == wire.Allreduce {
			all[k] = append([]string{algorithmInc}, all[k]...)
		}
	}
	return all
}()

// Algorithms lists the algorithms of an operation, besides AlgorithmAuto.
func Algorithms(k wire.CallKind) []string { return slices.Clone(algorithms[k]) }

// CheckAlgorithm returns an error that lists the algorithms of an operation, unless name is one of them.
func CheckAlgorithm(k wire.CallKind, name string) error {
	if name == AlgorithmAuto || slices.Contains(algorithms[k], name) {
		return nil
	}
	return fmt.Errorf("%v has no algorithm %q: want %s or auto", k, name, strings.Join(algorithms[k], ", "))
}

func parseTuning(s string) (rules Rules, err error) {
	for entry := range strings.SplitSeq(s, ";") {
		if entry = strings.TrimSpace(entry); entry == "" {
			continue
		}
		r, err := parseRule(strings.Split(entry, ":"))
		if err != nil {
			return nil, units.Refuse(entry, "%w", err)
		}
		rules = append(rules, r)
	}
	return rules, nil
}

func parseRule(fields []string) (Rule, error) {
	r := Rule{Kind: Operation(fields[0]), To: math.MaxInt64}
	switch {
	case r.Kind == 0:
		return r, fmt.Errorf("unknown operation %q: want one of %v", fields[0], wire.CallKinds())
	case len(fields) != 2 && len(fields) != 3:
		return r, fmt.Errorf("want operation:algorithm or operation:from-to:algorithm, as in allgather:4K-inf:mcast,ring")
	case len(fields) == 3:
		if err := r.parseSizes(fields[1]); err != nil {
			return r, err
		}
	}
	for a := range strings.SplitSeq(fields[len(fields)-1], ",") {
		if err := CheckAlgorithm(r.Kind, a); err != nil {
			return r, err
		}
		r.Algorithms = append(r.Algorithms, a)
	}
	return r, nil
}

func (r *Rule) parseSizes(s string) error {
	from, to, ok := strings.Cut(s, "-")
	if !ok {
		return fmt.Errorf("sizes %q: want from-to, as in 4K-1M or 4K-inf", s)
	}
	n, err := units.ParseSize(from)
	if err != nil {
		return err
	}
	r.From = int64(n)
	if to == "inf" {
		return nil
	}
	if n, err = units.ParseSize(to); err != nil {
		return err
	}
	if r.To = int64(n); r.To < r.From {
		return fmt.Errorf("sizes %q: the first is larger than the second", s)
	}
	return nil
}
