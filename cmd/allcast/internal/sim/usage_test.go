package sim

import (
	"fmt"
	"strings"
	"testing"

	"github.com/allcast/allcast/cmd/allcast/internal/cli"
	"github.com/allcast/allcast/internal/sim"
	"github.com/allcast/allcast/internal/wire"
)

// Bad input ends with status 2, lists the valid values, starts no simulation and prints nothing on stdout.
func TestUsageErrors(t *testing.T) {
	const star = "sim broadcast --topology star:8 "
	for _, c := range []struct{ args, want string }{
		{"sim", "broadcast, allgather"},
		{"sim frobnicate", "broadcast, allgather"},
		{"sim broadcast", "star:HOSTS, fat-tree:HOSTS,LEAVES,SPINES, fat-tree3:HOSTS,RADIX"},
		{"sim broadcast --topology ring:8", "fat-tree3:HOSTS,RADIX"},
		{"sim broadcast --topology star:0", "at least 1"},
		{"sim broadcast --topology star:8 now", "takes flags only"},
		{star + "--frobnicate", "--recv-queue"},
		{star + "--counts 1,2", "--root"}, // allgather's
		{"sim allgather --topology star:8 --root 1", "--counts"},
		{star + "--algo ring", "valid for broadcast: mcast"},
		{star + "--algo mcast,linear", "valid for broadcast: mcast"},
		{star + "--algo=", "valid for broadcast: mcast"},
		{"sim allgather --topology star:8 --algo inc", "valid for allgather: mcast"},
		{star + "--chains 0", "1 or more"},
		{star + "--chains -1", "1 or more"},
		{star + "--chains many", "int"},
		{star + "--subgroups 0", "1 or more"},
		{star + "--root 8", "0 to 7"},
		{star + "--root -1", "0 to 7"},
		{star + "--loss 2", "from 0 to 1"},
		{star + "--loss -1%", "from 0 to 1"},
		{star + "--loss-all 101%", "from 0 to 1"},
		{star + "--reorder nan", "from 0 to 1"},
		{star + "--duplicate x", "from 0 to 1"},
		{star + "--bytes 4KB", "4K or 4KiB"},
		{star + "--bytes -1", "4K or 4KiB"},
		{star + "--rate 100", "1gbit"},
		{star + "--rate 0gbit", "1gbit"},
		{star + "--latency 5", "duration"},
		{star + "--latency -5ns", "0s to 1h"},
		{star + "--noise -5ns", "0s to 1h"},
		{star + "--recv-cost -5ns", "0s to 1h"},
		{star + "--deadline -5ns", "0s to 1h"},
		{star + "--timeout 0s", "more than 0s"},
		{star + "--timeout 2h", "0s to 1h"},
		{star + "--stall 1@2h+1s", "0s to 1h"},
		{star + "--stall 1@1s+2h", "0s to 1h"},
		{star + "--crash 1@2h", "0s to 1h"},
		{star + "--queue 0", "lossless or a size"},
		{star + "--queue deep", "lossless or a size"},
		{star + "--queue 1K", "at least that"},
		{star + "--recv-queue 0", "unbounded or a size"},
		{star + "--recv-queue 1K", "at least that"},
		{star + "--flow tcp", `"none","credit"`},
		{star + "--chain-by luck", `"rank","rack"`},
		{star + "--chunk 0", "1 to 16M"},
		{star + "--psn-bits 33", "4 to 31"},
		{star + "--psn-bits -1", "4 to 31"},
		{star + "--stall 3@1ms", "RANK@TIME+DURATION"},
		{star + "--stall 8@1ms+1ms", "0 to 7"},
		{star + "--crash 5", "RANK@TIME"},
		{star + "--crash 8@1ms", "0 to 7"},
		{star + "--crash agg1@1ms", "agg0 to agg0"},
		{star + "--stall agg9@1ms+1ms", "agg0 to agg0"},
		{star + "--crash agg@1ms", "aggN"},
		{star + "--seed -1", "seed"},
		{star + "--algo mcast,mcast --pcap x.pcap", "one algorithm"},
		{star + "--pcap /no/such/directory/x.pcap", "no such file"},
		{star + "--pcap /", "directory"},
		{"sim allgather --topology star:3 --counts 1,2", "2 sizes for 3 ranks"},
		{"sim allgather --topology star:3 --counts 1,2,x", "4K or 4KiB"},
		{"sim allgather --topology star:3 --counts 1,2,3 --bytes 4K", "together"},
		{"sim gather --topology star:8 --root 8", "0 to 7"},
		{"sim gather --topology star:8 --algo ring", "valid for gather: binomial, linear"},
		{"sim gatherv --topology star:8 --counts 1,2", "--root"},
		{"sim alltoall --topology star:8 --root 1", "--segment"},
		{"sim alltoall --topology star:8 --loss 1%", "--loss-all"},
		{"sim reduce --topology star:8 --chains 2", "--segment"},
		{"sim reduce --topology star:8 --algo inc", "valid for reduce: binomial"},
		{"sim scatter --topology star:8 --inplace", "--segment"},
		{"sim sendrecv --topology star:8 --segment 4K", "--bytes"},
		{"sim sendrecv --topology star:8 --chunk 0", "1 to 16M"},
	} {
		o := execute(fine, strings.Fields(c.args)...)
		if o.Status != cli.StatusUsage {
			t.Errorf("allcast %s: status %d, want %d", c.args, o.Status, cli.StatusUsage)
		}
		if !strings.Contains(o.Stderr, c.want) || !strings.HasPrefix(o.Stderr, "allcast: ") {
			t.Errorf("allcast %s: the message\n%s does not say %q", c.args, o.Stderr, c.want)
		}
		if o.Stdout != "" || len(o.configs) != 0 {
			t.Errorf("allcast %s: printed %q and ran %d simulations", c.args, o.Stdout, len(o.configs))
		}
	}
}

// Every operation has a --help with an example, which starts no simulation.
func TestHelpHasExamples(t *testing.T) {
	all := []string{"sim"}
	for op := range operations {
		all = append(all, "sim "+op)
	}
	for _, args := range all {
		o := execute(fine, strings.Fields(args+" --help")...)
		if o.Status != cli.StatusOK || o.Stderr != "" || len(o.configs) != 0 {
			t.Errorf("allcast %s --help: status %d, stderr %q, %d simulations", args, o.Status, o.Stderr, len(o.configs))
		}
		if !strings.Contains(o.Stdout, "Example") || !strings.Contains(o.Stdout, "    allcast "+args) {
			t.Errorf("allcast %s --help has no example:\n%s", args, o.Stdout)
		}
	}
}

// The help of an operation lists its own algorithms, and the command has all operations of the simulator.
func TestHelpListsAlgorithms(t *testing.T) {
	for op, algos := range sim.Algorithms {
		help := strings.Join(strings.Fields(command("sim "+op+" --help").Stdout), " ")
		first, last := ": "+algos[0]+" (default)", algos[len(algos)-1]
		if !strings.Contains(help, first) || !strings.Contains(help, last) {
			t.Errorf("allcast sim %s --help does not list %v:\n%s", op, algos, help)
		}
	}
}

// The help of --psn-bits has the limits of the protocol.
func TestPSNBitsHelp(t *testing.T) {
	want := fmt.Sprintf("%d to %d (default %d).", wire.MinPSNBits, wire.MaxPSNBits, wire.DefaultPSNBits)
	help := strings.Join(strings.Fields(command("sim broadcast --help").Stdout), " ")
	if !strings.Contains(help, "Bits of the immediate that number chunks, "+want) {
		t.Errorf("--help does not say %q", want)
	}
}

func TestDatapath(t *testing.T) {
	o := execute(fine, strings.Fields("sim broadcast --topology star:3 --datapath dpa:ud,threads=4")...)
	if o.Status != cli.StatusOK || len(o.configs) != 1 || o.configs[0].Datapath != "dpa:ud,threads=4" {
		t.Errorf("status %d, %+v: %s", o.Status, o.configs, o.Stderr)
	}
	for args, want := range map[string]string{
		"--datapath cpu":                    "valid: dpa:ud",
		"--datapath dpa:ud,threads=0":       "threads: want 1 to 256",
		"--datapath dpa:ud --chunk 8K":      "want 1 to 4K",
		"--datapath dpa:ud --recv-cost 1us": "--recv-cost is for --datapath ideal",
		"--datapath dpa:ud --recv-queue 1M": "queue=ENTRIES",
	} {
		o := execute(fine, append([]string{"sim", "broadcast", "--topology", "star:3"}, strings.Fields(args)...)...)
		if o.Status != cli.StatusUsage || !strings.Contains(o.Stderr, want) {
			t.Errorf("%s: status %d, %q; want %q", args, o.Status, o.Stderr, want)
		}
	}
}

// A slow accelerator in the real simulator drops chunks, and the JSON names it.
func TestDatapathJSON(t *testing.T) {
	args := "sim allgather --topology star:3 --bytes 1M --rate 200gbit --datapath dpa:ud,threads=1,queue=32 --json"
	l := execute(sim.Run, strings.Fields(args)...).Objects(t)[0]
	if l["datapath"] != "dpa:ud,threads=1,queue=32" || l["verified"] != true || l["dropped_chunks"].(float64) == 0 ||
		l["repaired_chunks"].(float64) == 0 {
		t.Errorf("%v", l)
	}
}
