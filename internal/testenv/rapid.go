package testenv

import (
	"flag"
	"os"
	"strconv"
)

// Rapid makes property tests draw the same values in every run, so that a change does not fail by chance. They draw
// checks times, or as often as rapid does if checks is 0. The variables RAPID_SEED and RAPID_CHECKS and the flags
// -rapid.seed and -rapid.checks look further; seed 0 is a random one. Call Rapid before flags are parsed.
func Rapid(checks int) {
	rapidDefault("RAPID_SEED", "rapid.seed", 1)
	if checks > 0 {
		rapidDefault("RAPID_CHECKS", "rapid.checks", checks)
	}
}

// rapidDefault sets a flag that the environment does not set. The command line is parsed later.
func rapidDefault(variable, name string, value int) {
	if _, given := os.LookupEnv(variable); given {
		return
	}
	if err := flag.Set(name, strconv.Itoa(value)); err != nil {
		panic(err)
	}
}
