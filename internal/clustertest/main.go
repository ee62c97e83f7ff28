package clustertest

import (
	"flag"
	"os"
	"strconv"
	"testing"
)

// Main runs the tests of a package. Property tests draw the same values in every run, so that a change
// does not fail by chance. They draw checks times, or as often as rapid does if checks is 0. The flags
// -rapid.seed=N and -rapid.checks=N look further.
func Main(m *testing.M, checks int) {
	flag.Parse()
	values := map[string]string{"rapid.seed": "1"}
	if checks > 0 {
		values["rapid.checks"] = strconv.Itoa(checks)
	}
	for name, value := range values {
		if f := flag.Lookup(name); f.Value.String() == f.DefValue {
			if err := flag.Set(name, value); err != nil {
				panic(err)
			}
		}
	}
	os.Exit(m.Run())
}
