package perf

import (
	"slices"
	"strings"

	"github.com/allcast/allcast"
	"github.com/allcast/allcast/cmd/allcast/internal/bench"
	"github.com/allcast/allcast/cmd/allcast/internal/cli"
)

var operations = []string{"broadcast", "allgather", "reduce-scatter", "allreduce", "barrier", bench.Pair}

// checkAlgos splits a list of algorithms.
func checkAlgos(op, list string) ([]string, error) {
	algos, ops := strings.Split(list, ","), strings.Split(op, "+")
	for _, name := range algos {
		parts := []string{name}
		switch {
		case name == "auto": // for both halves of a pair
			continue
		case op == bench.Pair:
			if parts = strings.Split(name, "+"); len(parts) != len(ops) {
				return nil, cli.Usagef("--algo: %q is not a pair; valid for %s: auto, or an algorithm of allgather (%s, auto), "+
					"+, and one of reduce-scatter (%s, auto), as in mcast+ring", name, bench.Pair,
					strings.Join(allcast.Algorithms(ops[0]), ", "), strings.Join(allcast.Algorithms(ops[1]), ", "))
			}
		}
		for i, op := range ops {
			if err := checkAlgo(op, parts[i]); err != nil {
				return nil, err
			}
		}
	}
	return algos, nil
}

func checkAlgo(op, name string) error {
	known := allcast.Algorithms(op)
	if name == "auto" || slices.Contains(known, name) {
		return nil
	}
	why := "unknown algorithm"
	if name == "inc" {
		why = "no network has in-network reduction yet, except the simulator's: algorithm"
	}
	return cli.Usagef("--algo: %s %q; valid for %s: %s, auto", why, name, op, strings.Join(known, ", "))
}
