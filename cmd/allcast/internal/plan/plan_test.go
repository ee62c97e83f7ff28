package plan

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/allcast/allcast/cmd/allcast/internal/cli"
)

// small is a plan that takes less than a second.
const small = "plan --topology fat-tree:8,4,2 --oversubscribe 2 --params 1B --layers 2 --compute 30ms "

func TestPlanJSON(t *testing.T) {
	o := command(small + "--json --seed 3")
	lines := o.Objects(t)
	if o.Status != cli.StatusOK || o.Stderr != "" || len(lines) != 1 {
		t.Fatalf("status %d, %d lines, stderr %q", o.Status, len(lines), o.Stderr)
	}
	p := lines[0]
	if p["schema"] != 1.0 || p["seed"] != 3.0 {
		t.Errorf("schema %v, seed %v", p["schema"], p["seed"])
	}
	for path, want := range map[string]any{
		"network.topology": "fat-tree:8,4,2", "network.hosts": 8.0, "network.oversubscription": 2.0,
		"network.uplink_rate_gbit": 50.0, "model.params": 1e9, "model.layers": 2.0, "model.dtype": "bf16",
		"model.layer_bytes": 1e9, "model.compute_ms": 30.0, "switches.multicast_groups": 2.0, "switches.aggregators": 5.0,
		"switches.source": "graph", "placements.0.placement": "order", "placements.1.placement": "random:3",
		"placements.0.algorithms.0.algo": "ring+ring", "placements.1.algorithms.2.algo": "mcast+inc",
		"placements.0.algorithms.0.speedup.value": 1.0, "placements.0.algorithms.1.step_ms.source": "sim",
		"placements.0.algorithms.1.links.0.source": "graph", "placements.0.algorithms.1.links.0.tier": "host_up",
		"placements.0.algorithms.1.simulated.hosts": 8.0, "placements.0.curves.0.points.1.oversubscription": 2.0,
	} {
		if got := at(p, path); got != want {
			t.Errorf("%s is %v, want %v", path, got, want)
		}
	}
	for _, path := range []string{
		"step_ms.value", "exposed_ms.value", "allgather_line_rate_pct.value", "speedup.value", "links.2.max_bytes",
		"links.2.total_bytes",
	} {
		if n, ok := at(p, "placements.1.algorithms.1."+path).(float64); !ok || n <= 0 {
			t.Errorf("%s is %v", path, n)
		}
	}
}

// at follows a path of keys and indices.
func at(value any, path string) any {
	for key := range strings.SplitSeq(path, ".") {
		switch v := value.(type) {
		case map[string]any:
			value = v[key]
		case []any:
			i := int(key[0] - '0')
			if i >= len(v) {
				return nil
			}
			value = v[i]
		default:
			return nil
		}
	}
	return value
}

func TestPlanText(t *testing.T) {
	o := command(small + "--placement random:2 --algo mcast+inc")
	if o.Status != cli.StatusOK || o.Stderr != "" {
		t.Fatalf("status %d, stderr %q", o.Status, o.Stderr)
	}
	for _, want := range []string{
		`8 ranks at 100 Gbit/s, 2 per leaf with 2 uplinks of 50 Gbit/s: 2:1 oversubscribed`,
		`(?m)^ +random:2 +ring\+ring +\d+\.\d +`, `(?m)^ +random:2 +mcast\+inc +\d+\.\d +`, `(?m)^Recommendation:\n- `,
	} {
		if !regexp.MustCompile(want).MatchString(o.Stdout) {
			t.Errorf("no %q in\n%s", want, o.Stdout)
		}
	}
	if strings.Contains(o.Stdout, "order") {
		t.Errorf("an explicit placement is not the only one:\n%s", o.Stdout)
	}
}

// Values that come from a smaller simulation have a mark.
func TestPlanMarksScaledValues(t *testing.T) {
	o := command("plan --topology fat-tree:16,4,2 --params 1B --layers 600 --placement order --algo mcast+inc")
	row := regexp.MustCompile(`(?m)^ +order +mcast\+inc +\d+\.\d\* +\d+\.\d\* `)
	if o.Status != cli.StatusOK || !row.MatchString(o.Stdout) {
		t.Errorf("status %d, %s\n%s", o.Status, o.Stderr, o.Stdout)
	}
}

// The page is self-contained: it loads nothing and has no links.
func TestPlanPage(t *testing.T) {
	name := filepath.Join(t.TempDir(), "plan.html")
	if o := command(small + "--html " + name); o.Status != cli.StatusOK {
		t.Fatalf("status %d: %s", o.Status, o.Stderr)
	}
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	text := string(data)
	if strings.Count(text, "<svg") != 5 || strings.Count(text, "<table>") != 4 || !strings.Contains(text, "mcast+inc") &&
		!strings.Contains(text, "mcast&#43;inc") {
		t.Errorf("%d plots, %d tables", strings.Count(text, "<svg"), strings.Count(text, "<table>"))
	}
	for _, reference := range []string{"href=", "src=", "@import", "<script"} {
		if strings.Contains(text, reference) {
			t.Errorf("the page has %s", reference)
		}
	}
}

func TestPlanFile(t *testing.T) {
	name := filepath.Join(t.TempDir(), "network")
	text := "hosts-per-leaf 4\nleaves 2\nuplinks 2\nhost-rate 10gbit\nuplink-rate 10gbit # 2:1\n"
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	o := command("plan --params 100M --layers 2 --placement order --network " + name)
	const want = "8 ranks at 10 Gbit/s, 4 per leaf with 2 uplinks of 10 Gbit/s: 2:1 oversubscribed"
	if o.Status != cli.StatusOK || !strings.Contains(o.Stdout, want) {
		t.Errorf("status %d, %s\n%s", o.Status, o.Stderr, o.Stdout)
	}
	for _, flag := range []string{"--rate 1gbit", "--latency 1us", "--oversubscribe 2", "--topology star:8"} {
		if o := command("plan --network " + name + " " + flag); o.Status != cli.StatusUsage {
			t.Errorf("%s: status %d", flag, o.Status)
		}
	}
}

// Bad input ends with status 2, and prints and writes nothing.
func TestPlanUsage(t *testing.T) {
	page := filepath.Join(t.TempDir(), "page.html")
	bad := filepath.Join(t.TempDir(), "bad")
	if err := os.WriteFile(bad, []byte("hosts 8\nracks 2\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for args, want := range map[string]string{
		"":                                         "fat-tree:HOSTS,LEAVES,SPINES",
		"--topology ring:8":                        "fat-tree3:HOSTS,RADIX",
		"--topology star:1":                        "2 ranks or more",
		"--topology fat-tree:100000,1000,2":        "at most 16384",
		"--topology star:8 --oversubscribe 2":      "no links between switches",
		"--topology star:8 --oversubscribe 0.5":    "want 1 to 1024",
		"--topology star:8 --placement stride:9":   "--placement",
		"--topology star:8 --placement /none":      "--placement",
		"--topology star:8 --params many":          "7B",
		"--topology star:8 --layers -1":            "want 1 to 1000",
		"--topology star:8 --layers 1001":          "want 1 to 1000",
		"--topology star:8 --dtype int4":           "f8, f16, bf16, f32",
		"--topology star:8 --compute -1s":          "want 0s to",
		"--topology star:8 --latency -1s":          "want 0s to",
		"--topology star:8 --latency 2s":           "want 0s to",
		"--topology star:8 --shard 4":              "hybrid sharding",
		"--topology star:8 --shard 9":              "number of ranks, 8",
		"--topology star:8 --shard -1":             "number of ranks, 8",
		"--topology star:8 --algo ring":            "ring+ring",
		"--topology star:8 --algo=":                "ring+ring",
		"--topology star:8 --frobnicate":           "--placement",
		"--topology star:8 now":                    "takes flags only",
		"--topology star:8 --html /none/page":      "--html",
		"--network /none":                          "--network",
		"--network " + bad:                         "line 2: unknown key",
		"--topology star:8 --rate 0gbit":           "1gbit",
		"--topology star:4 --network " + bad + "x": "exclude each other",
	} {
		if !strings.Contains(args, "--html") {
			args += " --html " + page
		}
		o := command("plan " + args)
		if o.Status != cli.StatusUsage || o.Stdout != "" || !strings.Contains(o.Stderr, want) {
			t.Errorf("%s: status %d, stdout %q, stderr %q; want %q", args, o.Status, o.Stdout, o.Stderr, want)
		}
		if _, err := os.Stat(page); err == nil {
			t.Fatalf("%s wrote a page", args)
		}
	}
}
