package perf

import (
	"encoding/hex"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/allcast/allcast/cmd/allcast/internal/cli"
	"github.com/allcast/allcast/cmd/allcast/internal/clitest"
	"github.com/allcast/allcast/internal/aggregate"
	"github.com/allcast/allcast/internal/settings"
)

// aggregator starts an aggregator for three ranks, and sets the environment of jobs.
func aggregator(t *testing.T) *aggregate.Server {
	t.Helper()
	key := []byte("the key of this site")
	s, err := aggregate.Listen(aggregate.Config{Listen: "127.0.0.1:0", SiteKey: key})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	file := filepath.Join(t.TempDir(), "site.key")
	if err := os.WriteFile(file, []byte(hex.EncodeToString(key)), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv(settings.SiteKeyFileVar, file)
	t.Setenv(settings.AggregatorsVar, s.Addr().String()+"=0-2")
	return s
}

// Reductions by aggregators are verified and named, alone and in pairs.
func TestInc(t *testing.T) {
	aggregator(t)
	for args, want := range map[string]string{
		"reduce-scatter --algo inc,ring":                                   "inc ring",
		"allreduce --algo inc,ring --dtype bf16 --reduce avg --both":       "inc ring",
		"allgather+reduce-scatter --algo mcast+inc,ring+inc --dtype i16":   "mcast+inc ring+inc",
		"reduce-scatter --algo inc --reduce premul-sum --inplace -c 1 -w0": "inc",
	} {
		lines := clitest.JSON(t, "perf "+args+" --ranks 3 -b 100K -n 3 --json")
		if len(lines) != len(strings.Fields(want)) {
			t.Fatalf("%s: %d lines", args, len(lines))
		}
		for i, algo := range strings.Fields(want) {
			l := lines[i]
			if l["algo"] != algo || l["requested"] != algo || l["wrong"] != 0. || l["fallback_reason"] != "" {
				t.Errorf("%s: %v", args, l)
			}
			if sums := l["inc_sums"].(float64); (sums > 0) != strings.Contains(algo, "inc") || l["inc_fetched_bytes"] == nil {
				t.Errorf("%s: aggregators made %v sums: %v", args, sums, l)
			}
		}
	}
}

// The result of an Allreduce by aggregators is multicast, so flags of multicast have an effect.
func TestIncMulticast(t *testing.T) {
	aggregator(t)
	l := clitest.JSON(t, "perf allreduce --algo inc --chains 2 --ranks 3 -b 100K -n 1 -w 0 --json")[0]
	if l["algo"] != "inc" || l["wrong"] != 0. || l["chains"] != 2. {
		t.Errorf("%v", l)
	}
	o := clitest.Finish(t, clitest.Process(t, strings.Fields("perf reduce-scatter --algo inc --chains 2 --ranks 3")...))
	if o.Status != cli.StatusUsage || !strings.Contains(o.Stderr, "--chains has no effect") {
		t.Errorf("status %d, %s", o.Status, o.Stderr)
	}
}

// A measurement without the aggregators says so.
func TestIncFallback(t *testing.T) {
	s := aggregator(t)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	l := clitest.JSON(t, "perf reduce-scatter --algo inc --ranks 3 -b 100K -n 2 --json")[0]
	why, _ := l["fallback_reason"].(string)
	if l["algo"] != "inc" || l["wrong"] != 0. || !strings.Contains(why, s.Addr().String()) {
		t.Errorf("%v: want the reason to name the aggregator %v", l, s.Addr())
	}
}
