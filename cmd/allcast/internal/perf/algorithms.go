package perf

import (
	"slices"
	"strings"

	"github.com/allcast/allcast/cmd/allcast/internal/bench"
	"github.com/allcast/allcast/cmd/allcast/internal/cli"
	"github.com/allcast/allcast/internal/settings"
)

// findOperation finds an operation by its name or an alias.
func findOperation(name string) (*bench.Operation, error) {
	if op := bench.Find(name); op != nil {
		return op, nil
	}
	return nil, cli.Usagef("unknown operation %q; valid: %s, and the names of nccl-tests and OSU's benchmarks", name,
		operationNames(func(*bench.Operation) bool { return true }))
}

// operationNames lists some operations.
func operationNames(include func(*bench.Operation) bool) string {
	var names []string
	for _, op := range bench.Operations {
		if include(op) {
			names = append(names, op.Name)
		}
	}
	return strings.Join(names, ", ")
}

// checkAlgos splits a list of algorithms.
func checkAlgos(op *bench.Operation, list string) ([]string, error) {
	algos, known := strings.Split(list, ","), op.Algorithms()
	for _, name := range algos {
		parts := []string{name}
		switch {
		case name == "auto": // for both halves of a pair
			continue
		case len(known) == 2:
			if parts = strings.Split(name, "+"); len(parts) != len(known) {
				return nil, cli.Usagef("--algo: %q is not a pair; valid for %s: auto, or an algorithm of allgather (%s, auto), "+
					"+, and one of reduce-scatter (%s, auto), as in mcast+ring", name, op.Name,
					strings.Join(known[0], ", "), strings.Join(known[1], ", "))
			}
		}
		for i, half := range strings.Split(op.Name, "+") {
			if err := checkAlgo(half, known[i], parts[i]); err != nil {
				return nil, err
			}
		}
	}
	return algos, nil
}

func checkAlgo(op string, known []string, name string) error {
	if name == "auto" || slices.Contains(known, name) {
		return nil
	}
	return cli.Usagef("--algo: unknown algorithm %q; valid for %s: %s", name, op,
		strings.Join(append(known, "auto"), ", "))
}

// uses reports whether an algorithm of the list, or one half of a pair, is the given one.
func uses(algos []string, name string) bool {
	return slices.ContainsFunc(algos, func(algo string) bool { return slices.Contains(strings.Split(algo, "+"), name) })
}

// checkAggregation refuses algorithm inc where it can never work, as the library would.
func (c *fabricFlags) checkAggregation(algos []string) error {
	if !uses(algos, "inc") {
		return nil
	}
	env := settings.Process
	switch {
	case c.Secure || env.Get("ALLCAST_SECURE") == "on":
		return cli.Usagef("--algo inc: aggregators must see the values, which encryption (--secure, ALLCAST_SECURE) hides; " +
			"choose one of the two")
	case c.Integrity || env.Get("ALLCAST_INTEGRITY") == "on":
		return cli.Usagef("--algo inc: integrity checks (--integrity, ALLCAST_INTEGRITY) cannot cover sums that " +
			"aggregators make; choose one of the two")
	case c.Fabric == settings.Verbs:
		return cli.Usagef("--algo inc: aggregators work on --fabric ip only")
	case env.Get(settings.AggregatorsVar) == "":
		return cli.Usagef("--algo inc: no aggregators are configured; set %s (and %s), or use \"allcast lab run --inc\"",
			settings.AggregatorsVar, settings.SiteKeyFileVar)
	}
	return nil
}

// multicasts reports whether an algorithm of the list may multicast. An Allreduce by aggregators multicasts its result.
func multicasts(op *bench.Operation, algos []string) bool {
	return slices.ContainsFunc(algos, func(algo string) bool {
		for i, known := range op.Algorithms() {
			names := strings.Split(algo, "+")
			name := names[min(i, len(names)-1)] // auto stands for both halves of a pair
			switch {
			case slices.Contains(known, "mcast") && (name == "mcast" || name == "auto"):
				return true
			case op.Name == "allreduce" && name == "inc":
				return true
			}
		}
		return false
	})
}

// checkFlags refuses flags that have no effect.
func (c *Command) checkFlags(op *bench.Operation, algos []string) error {
	type flag struct {
		name  string
		given bool
	}
	for _, f := range []flag{
		{"-b", c.Min != nil},
		{"-e", c.Max != nil},
		{"-f", c.Factor != nil},
		{"--root", c.Root != nil},
		{"--dtype", c.DType != nil},
		{"--reduce", c.Reduce != nil},
		{"--inplace", c.InPlace},
		{"--both", c.Both},
		{"--buffers", c.Buffers != nil},
		{"--overlap", c.Overlap},
	} {
		if f.given && !op.Takes(f.name) {
			return cli.Usagef("%s has no effect on %s; valid for %s", f.name, op.Name,
				operationNames(func(o *bench.Operation) bool { return o.Takes(f.name) }))
		}
	}
	for _, f := range []flag{
		{"--chains", c.Chains != nil},
		{"--chain-by", c.ChainBy != nil},
		{"--subgroups", c.Subgroups != nil},
		{"--chunk", c.Chunk != nil},
	} {
		if f.given && !multicasts(op, algos) {
			return cli.Usagef("%s has no effect on %s by %s; valid for the algorithms mcast and auto of %s, and for inc "+
				"of allreduce", f.name, op.Name, strings.Join(algos, ", "),
				operationNames(func(o *bench.Operation) bool { return multicasts(o, []string{"auto"}) }))
		}
	}
	return nil
}
