package main

import (
	"strings"
	"testing"
)

// Figure 2, with the counts of docs/claims.md.
func TestModelTraffic(t *testing.T) {
	o := execute(t, fine, fields("model traffic --topology fat-tree3:1024,32")...)
	if o.status != statusOK {
		t.Fatalf("status %d: %s", o.status, o.stderr)
	}
	for _, want := range []string{
		"fat-tree3:1024,32, 1024 hosts, 384 switches",
		"         op                algo  block_links  ratio\n",
		"  allgather              linear      5732352   5.13\n",
		"  allgather                ring      2234232   2.00\n",
		"  allgather  recursive-doubling      5732352   5.13\n",
		"  allgather               mcast      1118208   1.00\n",
		"  broadcast               mcast         1092   1.00\n",
	} {
		if !strings.Contains(o.stdout, want) {
			t.Errorf("the table does not say %q:\n%s", want, o.stdout)
		}
	}
}

func TestModelTrafficJSON(t *testing.T) {
	lines := execute(t, fine, fields("model traffic --topology fat-tree:188,12,6 --json")...).objects(t)
	names := []string{
		"allgather linear", "allgather ring", "allgather recursive-doubling", "allgather bruck", "allgather mcast",
		"broadcast binomial", "broadcast knomial", "broadcast binary", "broadcast chain", "broadcast mcast",
	}
	if len(lines) != len(names) {
		t.Fatalf("%d lines, want %d", len(lines), len(names))
	}
	for i, l := range lines {
		op, algo, _ := strings.Cut(names[i], " ")
		if l["model"] != "traffic" || l["topology"] != "fat-tree:188,12,6" || l["nodes"] != 188.0 || l["op"] != op || l["algo"] != algo {
			t.Errorf("line %d: %v, want %s", i, l, names[i])
		}
		if links, ratio := l["block_links"].(float64), l["ratio"].(float64); links <= 0 || ratio < 1 || (ratio == 1) != (algo == "mcast") {
			t.Errorf("line %d: %v", i, l)
		}
	}
	if ring := lines[1]; ring["block_links"] != 74800.0 || ring["ratio"] != 74800.0/37600 {
		t.Errorf("the ring on the paper's testbed: %v", ring)
	}
}

func TestModelTrafficUsage(t *testing.T) {
	const forms = "star:HOSTS, fat-tree:HOSTS,LEAVES,SPINES, fat-tree3:HOSTS,RADIX"
	checkUsage(t, []usageCase{
		{"model", "traffic, psn, speedup"},
		{"model frobnicate", "traffic, psn, speedup"},
		{"model traffic", forms},
		{"model traffic --topology ring:8", "fat-tree3:HOSTS,RADIX"},
		{"model traffic --topology fat-tree3:1024,31", "odd"},
		{"model traffic --topology star:4097", "at most 4096"},
		{"model traffic --topology star:8 --algo ring", "--topology"},
		{"model traffic --topology star:8 now", "takes flags only"},
	})
}

type usageCase struct{ args, want string }

// checkUsage wants status 2, a message that says what is valid, and nothing on stdout.
func checkUsage(t *testing.T, cases []usageCase) {
	t.Helper()
	for _, c := range cases {
		o := execute(t, fine, fields(c.args)...)
		if o.status != statusUsage || o.stdout != "" {
			t.Errorf("allcast %s: status %d, want %d; printed %q", c.args, o.status, statusUsage, o.stdout)
		}
		if !strings.Contains(o.stderr, c.want) || !strings.HasPrefix(o.stderr, "allcast: ") {
			t.Errorf("allcast %s: the message\n%s does not say %q", c.args, o.stderr, c.want)
		}
	}
}

// The payload that the simulator counts on its links is what the model says, for
// every algorithm.
func TestRealTrafficIsTheModels(t *testing.T) {
	const bytes = 1000
	for _, topology := range []string{"star:16", "fat-tree:33,4,3", "fat-tree3:64,8", "fat-tree:188,12,6", "fat-tree3:256,16"} {
		for _, want := range command("model traffic --topology " + topology + " --json").objects(t) {
			op, algo := want["op"].(string), want["algo"].(string)
			got := one(t, statusOK, "sim "+op+" --topology "+topology+" --algo "+algo+" --bytes 1000")
			if links := want["block_links"].(float64); got["payload_link_bytes"] != links*bytes || got["verified"] != true {
				t.Errorf("%s %s on %s: %v payload bytes on the links, the model says %v", algo, op, topology, got["payload_link_bytes"], links*bytes)
			}
		}
	}
}
