package perf

import (
	"slices"
	"strings"

	"github.com/allcast/allcast"
	"github.com/allcast/allcast/cmd/allcast/internal/bench"
	"github.com/allcast/allcast/cmd/allcast/internal/cli"
)

var operations = []string{"broadcast", "allgather", "reduce-scatter", "allreduce", "barrier", bench.Pair}

// algorithms lists the algorithms of an operation, except auto.
func algorithms(op string) []string {
	first, second, pair := strings.Cut(op, "+")
	if !pair {
		return allcast.Algorithms(op)
	}
	var list []string
	for _, a := range allcast.Algorithms(first) {
		for _, b := range allcast.Algorithms(second) {
			list = append(list, a+"+"+b)
		}
	}
	return list
}

// checkAlgos splits a list of algorithms.
func checkAlgos(op, list string) ([]string, error) {
	algos := strings.Split(list, ",")
	for _, name := range algos {
		var err error
		switch {
		case name == "auto": // for both halves of a pair
		case op == bench.Pair:
			err = checkPair(name)
		default:
			err = checkAlgo(op, name)
		}
		if err != nil {
			return nil, err
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

func checkPair(name string) error {
	parts := strings.Split(name, "+")
	ops := strings.Split(bench.Pair, "+")
	if len(parts) != len(ops) {
		return cli.Usagef("--algo: %q is not a pair; valid for %s: auto, or an algorithm of allgather (%s, auto), "+
			"+, and one of reduce-scatter (%s, auto), as in mcast+ring", name, bench.Pair,
			strings.Join(allcast.Algorithms(ops[0]), ", "), strings.Join(allcast.Algorithms(ops[1]), ", "))
	}
	for i, op := range ops {
		if err := checkAlgo(op, parts[i]); err != nil {
			return err
		}
	}
	return nil
}
