package testenv

import (
	"fmt"
	"os"
	"regexp"
	"runtime/debug"
	"strconv"
	"strings"
	"testing"
)

// seedVar is the seed of all random tests of a run. Without it they do the same work every time.
const seedVar = "ALLCAST_TEST_SEED"

// Seed returns the seed of a test's random choices: the same in every run, or what ALLCAST_TEST_SEED says. If the
// test fails, the command that repeats these choices is part of its output.
func Seed(t testing.TB) uint64 {
	t.Helper()
	seed := uint64(1)
	if s := os.Getenv(seedVar); s != "" {
		var err error
		if seed, err = strconv.ParseUint(s, 10, 64); err != nil {
			t.Fatalf("%s=%s: want a number from 0 to 2^64-1", seedVar, s)
		}
	}
	t.Logf("seed %d; to repeat: %s", seed, replay(seed, t.Name()))
	return seed
}

// replay returns the command that runs one test with a seed.
func replay(seed uint64, test string) string {
	var levels []string
	for level := range strings.SplitSeq(test, "/") {
		levels = append(levels, "^"+regexp.QuoteMeta(level)+"$")
	}
	pkg := "."
	if info, ok := debug.ReadBuildInfo(); ok {
		pkg = strings.TrimSuffix(info.Path, ".test")
	}
	race := ""
	if Race {
		race = "-race "
	}
	return fmt.Sprintf("%s=%d go test %s-count=1 -run '%s' %s", seedVar, seed, race, strings.Join(levels, "/"), pkg)
}
