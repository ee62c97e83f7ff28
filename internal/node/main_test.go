package node

import (
	"flag"
	"os"
	"testing"
)

// TestMain makes the property tests draw the same values in every run, so that
// a change never fails by luck. To look further: -rapid.seed=N -rapid.checks=N.
func TestMain(m *testing.M) {
	flag.Parse()
	if seed := flag.Lookup("rapid.seed"); seed.Value.String() == seed.DefValue {
		if err := flag.Set("rapid.seed", "1"); err != nil {
			panic(err)
		}
	}
	os.Exit(m.Run())
}
