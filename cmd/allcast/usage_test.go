package main

import (
	"io"
	"strings"
	"testing"
)

// Bad input ends with status 2, says what is valid, starts nothing and leaves stdout alone.
func TestUsageErrors(t *testing.T) {
	const (
		star = "sim broadcast --topology star:8 "
		perf = "perf allgather "
	)
	for _, name := range []string{"RANK", "WORLD_SIZE"} {
		unset(t, name)
	}
	for _, c := range []struct{ args, want string }{
		{"", "demo, run, perf, doctor, "},
		{"frobnicate", "demo, run, perf, doctor, "},
		{"--frobnicate", "--json"},
		{"sim", "broadcast, allgather"},
		{"sim reduce", "broadcast, allgather"},
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
		{star + "--seed -1", "seed"},
		{star + "--algo mcast,mcast --pcap x.pcap", "one algorithm"},
		{star + "--pcap /no/such/directory/x.pcap", "no such file"},
		{star + "--pcap /", "directory"},
		{"sim allgather --topology star:3 --counts 1,2", "2 sizes for 3 ranks"},
		{"sim allgather --topology star:3 --counts 1,2,x", "4K or 4KiB"},
		{"sim allgather --topology star:3 --counts 1,2,3 --bytes 4K", "together"},
		{"model", "psn"},
		{"model psn --chunk 0", "1 to 16777216"},
		{"model psn --llc 0", "16G"},
		{"model psn --chunk 4kb", "4K or 4KiB"},
		{"demo --ranks 1", "2 to 32"},
		{"demo --ranks 33", "2 to 32"},
		{"doctor now", "takes flags only"},
		{"run", "--ranks"},
		{"run -n 2", "PROGRAM ARGUMENTS"},
		{"run -n 2 --", "PROGRAM ARGUMENTS"},
		{"run -n 0 true", "1 to 1024"},
		{"run -n 1025 true", "1 to 1024"},
		{"run -n 2 -- /no/such/program", "/no/such/program"},
		{"run -n 2 -- .", "cannot start"},
		{"perf", "broadcast, allgather, reduce-scatter, allreduce, barrier"},
		{"perf gather", "broadcast, allgather, reduce-scatter, allreduce, barrier"},
		{"perf barrier allgather", "one operation"},
		{perf + "--frobnicate", "--inplace"},
		{perf + "--ranks 0", "1 to 1024"},
		{perf + "--ranks 1025", "1 to 1024"},
		{perf + "--algo binomial", "valid for allgather: mcast, bruck, linear, recursive-doubling, ring, auto"},
		{perf + "--algo mcast,", "valid for allgather: mcast"},
		{"perf reduce-scatter --algo inc", "valid for reduce-scatter: recursive-halving, ring"},
		{"perf broadcast --root 8", "0 to 7"},
		{"perf broadcast --root -1", "0 to 7"},
		{"perf broadcast --ranks 3 --root 3", "0 to 2"},
		{perf + "-b 4KB", "4K or 4KiB"},
		{perf + "-b 8K -e 4K", "-b 8K is more than -e 4K"},
		{perf + "-b 1000000G", "GiB are free"},
		{perf + "-f 1", "2 or more"},
		{perf + "-n 0", "1 or more"},
		{perf + "-w -1", "0 or more"},
		{perf + "-c 2", "0 or 1"},
		{perf + "--chains 0", "1 or more"},
		{perf + "--subgroups 0", "1 or more"},
		{perf + "--chunk 0", "1 to 65453"},
		{perf + "--chunk 66000", "1 to 65453"},
		{"perf allreduce --dtype f8", "bf16"},
		{"perf allreduce --reduce xor", "prod"},
		{perf + "--fabric verbs --secure", "verbs"},
		{perf + "--fabric tcp", "valid: ip, verbs"},
		{perf + "--datapath dpdk", "valid: host, bpf, auto"},
		{perf + "--datapath bpf,host", "valid: host, bpf, auto"},
		{perf + "--hook xdp", "--datapath bpf or auto"},
		{perf + "--datapath host --hook tcx", "--datapath bpf or auto"},
		{perf + "--datapath bpf --hook nic", "valid: sockfilter, tcx, xdp"},
		{perf + "--datapath bpf --secure", "use --datapath host"},
		{perf + "--datapath bpf --integrity", "use --datapath host"},
		{"version --verbose", "--json"},
	} {
		o := execute(t, fine, fields(c.args)...)
		if o.status != statusUsage {
			t.Errorf("allcast %s: status %d, want %d", c.args, o.status, statusUsage)
		}
		if !strings.Contains(o.stderr, c.want) || !strings.HasPrefix(o.stderr, "allcast: ") {
			t.Errorf("allcast %s: the message\n%s does not say %q", c.args, o.stderr, c.want)
		}
		if o.stdout != "" || len(o.configs) != 0 {
			t.Errorf("allcast %s: printed %q and ran %d simulations", c.args, o.stdout, len(o.configs))
		}
	}
}

// Every command has a --help with an example, and it is neither parsed further nor run.
func TestHelpHasExamples(t *testing.T) {
	for _, args := range []string{
		"", "demo", "run", "perf", "doctor", "sim", "sim broadcast", "sim allgather", "model", "model psn", "version",
	} {
		o := execute(t, fine, fields(args+" --help")...)
		if o.status != statusOK || o.stderr != "" || len(o.configs) != 0 {
			t.Errorf("allcast %s --help: status %d, stderr %q, %d simulations", args, o.status, o.stderr, len(o.configs))
		}
		if !strings.Contains(o.stdout, "Example") || !strings.Contains(o.stdout, "    allcast "+args) {
			t.Errorf("allcast %s --help has no example:\n%s", args, o.stdout)
		}
	}
}

func TestResultsThatCannotBeWritten(t *testing.T) {
	for _, args := range []string{
		"version", "version --json", "model psn", "model psn --json", "doctor", "doctor --json",
		"sim broadcast --topology star:2", "sim broadcast --topology star:2 --json",
	} {
		r, w := io.Pipe()
		_ = r.Close()
		a := &app{stdout: w, stderr: io.Discard, simulate: fine}
		if status := a.run(fields(args)); status != statusFailed {
			t.Errorf("allcast %s to a closed pipe: status %d, want %d", args, status, statusFailed)
		}
	}
}
