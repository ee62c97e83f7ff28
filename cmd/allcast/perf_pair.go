package main

import (
	"slices"
	"strings"

	"github.com/allcast/allcast"
)

// perfPair runs both at once. A pair's name, as that of its algorithms, is those of its
// halves with a plus between them.
const perfPair = "allgather+reduce-scatter"

var perfOperations = []string{"broadcast", "allgather", "reduce-scatter", "allreduce", "barrier", perfPair}

// perfAlgorithms lists what an operation can be run with, besides auto.
func perfAlgorithms(op string) []string {
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

// checkAlgos takes a list of algorithms apart.
func checkAlgos(op, list string) ([]string, error) {
	algos := strings.Split(list, ",")
	for _, name := range algos {
		var err error
		switch {
		case name == "auto": // of a pair, both
		case op == perfPair:
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
		why = "no network has in-network reduction yet, apart from the simulator's: algorithm"
	}
	return usagef("--algo: %s %q; valid for %s: %s, auto", why, name, op, strings.Join(known, ", "))
}

func checkPair(name string) error {
	parts := strings.Split(name, "+")
	ops := strings.Split(perfPair, "+")
	if len(parts) != len(ops) {
		return usagef("--algo: %q is no pair; valid for %s: auto, or an algorithm of allgather (%s, auto), +, and one of reduce-scatter (%s, auto), as in mcast+ring",
			name, perfPair, strings.Join(allcast.Algorithms(ops[0]), ", "), strings.Join(allcast.Algorithms(ops[1]), ", "))
	}
	for i, op := range ops {
		if err := checkAlgo(op, parts[i]); err != nil {
			return err
		}
	}
	return nil
}

// halves are the operations that run at once, and their algorithms.
func halves(op, algo string) (ops, algos []string) {
	ops = strings.Split(op, "+")
	if algo == "auto" {
		return ops, slices.Repeat([]string{algo}, len(ops))
	}
	return ops, strings.Split(algo, "+")
}
