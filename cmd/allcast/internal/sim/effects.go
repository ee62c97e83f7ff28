package sim

import (
	"slices"
	"strings"

	"github.com/allcast/allcast/cmd/allcast/internal/cli"
)

// effects names the algorithms on which some flags have an effect. All other flags have one on every algorithm.
var effects = []struct {
	flags []string
	on    string
	has   func(op, algo string) bool
}{
	{
		[]string{"chains", "chain-by", "subgroups", "psn-bits", "tokens"},
		"mcast, auto, and inc of allreduce",
		func(op, algo string) bool { return algo == "mcast" || op == "allreduce" && algo == "inc" },
	},
	{
		[]string{"queue", "recv-queue", "recv-cost", "datapath", "flow", "loss", "reorder", "duplicate"},
		"mcast, inc and auto, which send datagrams",
		func(_, algo string) bool { return algo == "mcast" || algo == "inc" },
	},
	{
		[]string{"segment"},
		"point-to-point algorithms and auto",
		func(_, algo string) bool { return algo != "mcast" && algo != "inc" },
	},
	{[]string{"radix"}, "knomial and auto", func(_, algo string) bool { return algo == "knomial" }},
}

// checkEffects refuses flags that have no effect on any of the algorithms.
func checkEffects(op string, algos, given []string) error {
	for _, e := range effects {
		if slices.ContainsFunc(algos, func(algo string) bool {
			return slices.ContainsFunc(strings.Split(algo, "+"), func(part string) bool {
				return part == "auto" || e.has(op, part)
			})
		}) {
			continue
		}
		for _, name := range e.flags {
			if slices.Contains(given, name) {
				return cli.Usagef("--%s has no effect on %s by %s; valid for %s", name, op, strings.Join(algos, ", "), e.on)
			}
		}
	}
	return nil
}
