package model

import (
	"strings"
	"testing"

	"github.com/allcast/allcast/cmd/allcast/internal/cli"
)

func TestTrafficJSON(t *testing.T) {
	lines := command("model traffic --topology fat-tree:188,12,6 --json").Objects(t)
	names := []string{
		"allgather linear", "allgather ring", "allgather recursive-doubling", "allgather bruck", "allgather mcast",
		"broadcast binomial", "broadcast knomial", "broadcast binary", "broadcast chain", "broadcast mcast",
	}
	if len(lines) != len(names) {
		t.Fatalf("%d lines, want %d", len(lines), len(names))
	}
	for i, l := range lines {
		op, algo, _ := strings.Cut(names[i], " ")
		if l["model"] != "traffic" || l["topology"] != "fat-tree:188,12,6" || l["nodes"] != 188.0 || l["op"] != op ||
			l["algo"] != algo {
			t.Errorf("line %d: %v, want %s", i, l, names[i])
		}
		if links, ratio := l["block_links"].(float64), l["ratio"].(float64); links <= 0 || ratio < 1 ||
			(ratio == 1) != (algo == "mcast") {
			t.Errorf("line %d: %v", i, l)
		}
	}
	if ring := lines[1]; ring["block_links"] != 74800.0 || ring["ratio"] != 74800.0/37600 {
		t.Errorf("the ring on the paper's testbed: %v", ring)
	}
}

func TestTrafficTimes(t *testing.T) {
	const args = "model traffic --topology fat-tree:16,4,2 --rate 10gbit --oversubscribe 4 --bytes 4K --json"
	placed := command(args + " --placement random:1").Objects(t)
	for i, l := range command(args).Objects(t) {
		share := l["line_rate_share"].(float64)
		if l["time_us"].(float64) <= 0 || share <= 0 || share > 1 || l["oversubscribe"] != 4.0 || l["placement"] != nil ||
			l["bytes"] != 4096.0 || len(l["tier_bytes"].(map[string]any)) != 4 {
			t.Errorf("%v", l)
		}
		if l["algo"] == "mcast" && (l["subgroups"] == nil || placed[i]["time_us"] != l["time_us"]) {
			t.Errorf("multicast depends on the placement: %v and %v", l, placed[i])
		}
		if l["algo"] == "ring" && placed[i]["line_rate_share"].(float64) >= share {
			t.Errorf("the ring is as fast at random: %v", placed[i])
		}
	}
}

func TestTrafficUsage(t *testing.T) {
	for args, want := range map[string]string{
		"--oversubscribe 2":                "give --rate",
		"--bytes 0":                        "want 1 or more",
		"--rate 1gbit --subgroups 0":       "--subgroups 0",
		"--rate 1gbit --subgroups 1000000": "--subgroups 1000000",
		"--placement random:x":             "random:SEED",
		"--routing x":                      "valid are",
		"--rate 1gbit --oversubscribe 0":   "want 1 to",
	} {
		o := command("model traffic --topology fat-tree:16,4,2 " + args)
		if o.Status != cli.StatusUsage || !strings.Contains(o.Stderr, want) || o.Stdout != "" {
			t.Errorf("%s: status %d, %q, want %q", args, o.Status, o.Stderr, want)
		}
	}
}

// For every algorithm, the simulator counts the payload on its links that the model predicts.
func TestTrafficIsTheSimulators(t *testing.T) {
	const bytes = 1000
	for _, topology := range []string{
		"star:16", "fat-tree:33,4,3", "fat-tree3:64,8", "fat-tree:188,12,6",
		"fat-tree3:256,16",
	} {
		for _, want := range command("model traffic --topology " + topology + " --json").Objects(t) {
			op, algo := want["op"].(string), want["algo"].(string)
			o := command("sim " + op + " --topology " + topology + " --algo " + algo + " --bytes 1000 --json")
			got := o.Objects(t)[0]
			if links := want["block_links"].(float64); got["payload_link_bytes"] != links*bytes || got["verified"] != true ||
				o.Status != cli.StatusOK {
				t.Errorf("%s %s on %s: %v payload bytes on the links, the model says %v", algo, op, topology,
					got["payload_link_bytes"], links*bytes)
			}
		}
	}
}
