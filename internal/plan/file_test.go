package plan

import (
	"math"
	"strings"
	"testing"
	"time"
)

func TestParseNetwork(t *testing.T) {
	for _, c := range []struct {
		text, name    string
		hosts, racks  int
		uplink, ratio float64
	}{
		{"hosts 8", "star:8", 8, 1, 0, 1},
		{"hosts 1024\nhosts-per-leaf 32\nuplinks 8\n", "fat-tree:1024,32,8", 1024, 32, 1, 4},
		{
			"hosts-per-leaf 32 # full\n\nleaves 4\nuplinks 8\nhost-rate 100gbit\nuplink-rate 400gbit",
			"fat-tree:128,4,8", 128, 4, 4, 1,
		},
		{"hosts 20\nhosts-per-leaf 8\nuplinks 4\nspines 2", "fat-tree:24,3,2", 20, 3, 2, 2},
		{
			"hosts 188\nleaves 12\nuplinks 6\nhost-rate 56gbit\nuplink-rate 28gbit",
			"fat-tree:192,12,6", 188, 12, 0.5, 16.0 / 3,
		},
		{"hosts 1024\nradix 32\nhost-rate 100gbit\nuplink-rate 25gbit", "fat-tree3:1024,32", 1024, 64, 0.25, 4},
	} {
		n, err := ParseNetwork(c.text)
		if err != nil {
			t.Errorf("%q: %v", c.text, err)
			continue
		}
		g := n.Graph
		if g.Name != c.name || g.Hosts != c.hosts || g.Racks() != c.racks || g.Shape().Uplink != c.uplink ||
			math.Abs(oversubscription(g)-c.ratio) > 1e-9 {
			t.Errorf("%q is %s with %d hosts on %d leaves, uplinks of %v, %v:1", c.text, g.Name, g.Hosts, g.Racks(),
				g.Shape().Uplink, oversubscription(g))
		}
	}
	n, err := ParseNetwork("hosts 8\nhost-rate 10gbit\nlatency 2us")
	if err != nil || n.Rate != 10e9 || n.Latency != 2*time.Microsecond {
		t.Errorf("%+v, %v", n, err)
	}
}

func TestParseNetworkErrors(t *testing.T) {
	for text, want := range map[string]string{
		"":                                       "number of hosts is unknown",
		"hosts":                                  "line 1: hosts has 0 values",
		"hosts 8 9":                              "line 1: hosts has 2 values",
		"hosts 8\nhosts 9":                       "line 2: hosts is in line 1 already",
		"\n# x\nhosts many":                      "line 3: hosts",
		"hosts 0":                                "from 1 to",
		"hosts 99999999999999999999":             "from 1 to",
		"racks 8":                                "valid are hosts, hosts-per-leaf",
		"hosts 8\nuplinks 2":                     "line 2: uplinks: there is one leaf only",
		"hosts 8\nleaves 2":                      "no uplinks",
		"hosts 9\nleaves 2\nhosts-per-leaf 4":    "line 1: 9 hosts do not fit",
		"hosts 8\nleaves 2\nuplinks 3\nspines 2": "line 4: spines",
		"hosts 8\nleaves 2\nuplinks 2\nuplink-rate 1gbit":           "line 4: uplink-rate",
		"hosts 8\nhost-rate fast":                                   "line 2: host-rate",
		"hosts 8\nlatency 5":                                        "line 2: latency",
		"hosts 8\nlatency 2h":                                       "line 2: latency",
		"radix 4":                                                   "no hosts",
		"hosts 8\nradix 4\nleaves 2":                                "line 3: leaves: the radix",
		"hosts 17\nradix 4":                                         "too many for radix 4",
		"hosts-per-leaf 1048576\nleaves 1048576\nuplinks 1":         "do not fit",
		"hosts 1000000\nhosts-per-leaf 1\nuplinks 1000\n":           "cables",
		"hosts 4\nleaves 1\nuplinks 1048576\nuplink-rate 1000gbit ": "one leaf only",
	} {
		_, err := ParseNetwork(text)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

// Any text gives a network or an error, and a network has what the file says.
func FuzzParseNetwork(f *testing.F) {
	f.Add("hosts 1024\nhosts-per-leaf 32\nuplinks 8\nhost-rate 100gbit\nuplink-rate 100gbit # 4:1\nlatency 500ns")
	f.Add("hosts 20\nhosts-per-leaf 8\nuplinks 4\nspines 2")
	f.Add("hosts 1024\nradix 32")
	f.Fuzz(func(t *testing.T, text string) {
		n, err := ParseNetwork(text)
		if err != nil {
			return
		}
		g := n.Graph
		if g.Hosts < 1 || n.Rate <= 0 || n.Latency < 0 || oversubscription(g) < 1 || math.IsInf(oversubscription(g), 0) {
			t.Errorf("%q: %d hosts, rate %v, latency %v, %v:1", text, g.Hosts, n.Rate, n.Latency, oversubscription(g))
		}
	})
}
