package sim

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/allcast/allcast/cmd/allcast/internal/cli"
	"github.com/allcast/allcast/internal/background"
)

// The flags of the network reach the simulator, and the result repeats them.
func TestNetworkFlags(t *testing.T) {
	file := filepath.Join(t.TempDir(), "hosts")
	if err := os.WriteFile(file, []byte("# two racks\n15\n0\n1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, op := range []string{"allgather", "alltoall", "barrier"} {
		o := execute(fine, strings.Fields("sim "+op+" --topology fat-tree:16,4,2 --oversubscribe 2.5 --placement "+file+
			" --background 4:10% --routing hash:3 --json")...)
		if o.Status != cli.StatusOK || len(o.configs) != 1 {
			t.Fatalf("%s: status %d: %s", op, o.Status, o.Stderr)
		}
		cfg := o.configs[0]
		g := cfg.Topology
		if g.Hosts != 3 || g.Position(0) != 15 || g.Oversubscription() != 2.5 || cfg.Placement != file ||
			cfg.Routing != "hash:3" || cfg.Background != (background.Spec{Flows: 4, Share: 0.1, Seed: 1}) {
			t.Errorf("%s: %d hosts, %+v %+v", op, g.Hosts, cfg.Labels, cfg.Background)
		}
	}
}

func TestSubgroupsDefaultToTrees(t *testing.T) {
	for args, want := range map[string]int{
		"--topology fat-tree:64,8,2":                1 + 1,
		"--topology fat-tree:64,8,2 --subgroups 1":  1,
		"--topology fat-tree:64,2,32":               16,
		"--topology star:4":                         1,
		"--topology fat-tree:16,4,2 --subgroups 16": 16,
	} {
		o := execute(fine, strings.Fields("sim allgather --json "+args)...)
		if len(o.configs) != 1 || o.configs[0].Subgroups != want {
			t.Errorf("%s: %v; want %d subgroups", args, o.configs, want)
		}
	}
}

func TestNetworkResult(t *testing.T) {
	const args = "sim allgather --topology fat-tree:16,4,2 --bytes 16K --json"
	plain := command(args).Objects(t)[0]
	for _, name := range []string{"oversubscribe", "placement", "routing", "background", "background_bytes"} {
		if v, ok := plain[name]; ok {
			t.Errorf("a plain run reports %s %v", name, v)
		}
	}
	const changes = " --oversubscribe 4 --placement random:1 --background 8:50% --routing hash --algo ring"
	busy := command(args + changes).Objects(t)[0]
	if busy["oversubscribe"] != 4.0 || busy["placement"] != "random:1" || busy["background"] != "8:0.5:1" ||
		busy["routing"] != "hash" || busy["background_bytes"] == nil {
		t.Errorf("%v", busy)
	}
	tiers := busy["tier_bytes"].(map[string]any)
	if tiers["host_down"] != 15.0*16*16384 || len(tiers) != 4 || busy["line_rate_share"].(float64) <= 0 {
		t.Errorf("%v of line rate, payload per tier %v", busy["line_rate_share"], tiers)
	}
}

func TestNetworkUsage(t *testing.T) {
	for args, want := range map[string]string{
		"--oversubscribe 0.5":                  "want 1 to",
		"--oversubscribe NaN":                  "want 1 to",
		"--oversubscribe x":                    "--oversubscribe",
		"--placement random":                   "random:SEED",
		"--placement nosuchfile":               "no such file",
		"--placement stride:17":                "stride:N",
		"--background 4":                       "FLOWS:SHARE",
		"--background 4:200%":                  "the share",
		"--routing ecmp":                       "valid are dmodk or hash[:SEED]",
		"--routing hash:x":                     "no whole number",
		"--topology star:4 --background 4:10%": "needs two",
		"--topology star:4 --oversubscribe 2":  "cannot be oversubscribed",
	} {
		for _, op := range []string{"allgather", "alltoall", "fsdp"} {
			line := "sim " + op + " " + args
			if !strings.Contains(args, "--topology") {
				line += " --topology fat-tree:16,4,2"
			}
			if o := command(line); o.Status != cli.StatusUsage || !strings.Contains(o.Stderr, want) || o.Stdout != "" {
				t.Errorf("%s: status %d, %q, want %q", line, o.Status, o.Stderr, want)
			}
		}
	}
}
