//go:build linux

package main

import (
	"fmt"
	"math"
	"runtime"
	"strings"
)

// rows lists all rows, in the order in which they are measured and printed.
var rows = []*row{
	chains(),
	ranks(),
	lineRate(),
	small(),
	limit(),
	protected(),
	subgroups(),
	datapaths(),
	receiver(),
	auto(),
	bothDirections(),
	inNetwork(),
	controlBytes(),
	joining(),
	simulator(),
}

func chains() *row {
	r := &row{
		name:  "chains",
		about: "Allgather of 64 KiB on 32 hosts: several chains against one, and chunks that were copied",
		needs: []need{root},
	}
	for _, m := range []int{1, 2, 4, 8} {
		name := fmt.Sprintf("chains %d", m)
		r.runs = append(r.runs, inLab(name, "fat-tree:32,4,2",
			fmt.Sprintf("allgather --algo mcast --chains %d -b 64K -n 11 -w 3", m)))
		if m > 1 {
			r.figures = append(r.figures, over(name+" / chains 1, time", name, "chains 1").most(1.15),
				figure{name: name + ", copied chunks", of: name + " copied", unit: "%"}.most(1))
		}
	}
	return r
}

func ranks() *row {
	r := &row{
		name:  "ranks",
		about: "Allgather of 64 KiB among many ranks: multicast against a ring, and growth of multicast against P^2",
		needs: []need{root},
	}
	const first = 32
	for _, p := range []int{first, 64, 96, 144, 188} {
		at := fmt.Sprintf("P %d, ", p)
		r.runs = append(r.runs, inLab(at+"{algo}", fmt.Sprintf("fat-tree:%d,12,6", p),
			"allgather --algo mcast,ring -b 64K -n 5 -w 1"))
		r.figures = append(r.figures, over(at+"mcast / ring, time", at+"mcast", at+"ring").most(1))
		if p > first {
			grown := over(fmt.Sprintf("P %d / P %d, time of mcast, over the ratio of P^2", p, first), at+"mcast",
				fmt.Sprintf("P %d, mcast", first))
			grown.scale = math.Pow(float64(p)/first, 2)
			r.figures = append(r.figures, grown)
		}
	}
	return r
}

func lineRate() *row {
	const (
		hosts = 8
		rate  = 200e6 // bits per second
		block = 1 << 20
	)
	r := &row{
		name:  "line-rate",
		about: "Allgather of 1 MiB on 8 hosts at 200 Mbit/s: the default and several chains against the line rate",
		needs: []need{root},
		given: values{"line rate": 1e6 * (hosts - 1) * block * 8 / rate},
	}
	add := func(name, flags string) {
		r.runs = append(r.runs, inLab(name, "star:8 --rate 200mbit", "allgather --algo mcast -b 1M -n 5 -w 2"+flags))
		r.figures = append(r.figures, over("line rate / "+name+", time", "line rate", name))
	}
	add("default", "")
	r.figures[0] = r.figures[0].least(0.97)
	for _, m := range []int{1, 2, 4, 8} {
		add(fmt.Sprintf("chains %d", m), fmt.Sprintf(" --chains %d", m))
	}
	return r
}

func protected() *row {
	r := &row{name: "protected", about: "Allgather of 4 MiB among 4 local ranks: checksums and encryption against neither"}
	const plain = "allgather --ranks 4 --algo mcast -b 4M -n 10"
	r.runs = append(r.runs, perf("plain", plain))
	for _, flag := range []string{"--integrity", "--secure"} {
		r.runs = append(r.runs, perf(flag, plain+" "+flag))
	}
	for _, what := range []string{"time", "processor time"} {
		suffix := ""
		if what != "time" {
			suffix = " cpu"
		}
		r.figures = append(r.figures,
			over("--integrity / plain, "+what, "--integrity"+suffix, "plain"+suffix),
			over("--secure / plain, "+what, "--secure"+suffix, "plain"+suffix))
	}
	r.figures[0], r.figures[1] = r.figures[0].most(1.3), r.figures[1].most(1.6)
	return r
}

func subgroups() *row {
	const local, perRank = 8, 2 // ranks, and cores from which on a rank has some to spare
	r := &row{
		name: "subgroups",
		about: "Allgather of 1 MiB among 8 local ranks: several subgroups against one; they should help with two cores " +
			"per rank or more",
	}
	for _, s := range []int{1, 2, 4} {
		name := fmt.Sprintf("subgroups %d", s)
		r.runs = append(r.runs,
			perf(name, fmt.Sprintf("allgather --ranks %d --algo mcast --subgroups %d -b 1M", local, s)))
		if s > 1 {
			f := over(name+" / subgroups 1, time", name, "subgroups 1")
			if runtime.NumCPU() >= perRank*local {
				f = f.most(1)
			}
			r.figures = append(r.figures, f)
		}
	}
	return r
}

func datapaths() *row {
	r := &row{
		name:  "datapaths",
		about: "Allgather of 1 MiB among 8 local ranks: the datapath that auto chooses against the fixed ones",
		needs: []need{root},
	}
	for _, d := range []string{"host", "bpf", "auto"} {
		r.runs = append(r.runs, perf(d, "allgather --ranks 8 --algo mcast -b 1M -n 11 --datapath "+d))
	}
	r.figures = []figure{
		over("bpf / host, time", "bpf", "host"),
		over("auto / the faster of both, time", "auto", "host", "bpf").most(1.15),
	}
	return r
}

func bothDirections() *row {
	return &row{
		name:  "both",
		about: "Allgather next to a Reduce-Scatter, 1 MiB, on 8 hosts at 200 Mbit/s: multicast and ring against two rings",
		needs: []need{root},
		runs: []measurement{
			inLab("{algo}", "star:8 --rate 200mbit", "allgather+reduce-scatter --algo mcast+ring,ring+ring -b 1M -n 5 -w 2"),
		},
		figures: []figure{over("mcast+ring / ring+ring, time", "mcast+ring", "ring+ring").most(1)},
	}
}

// inNetwork compares two rings with a multicast Allgather next to a Reduce-Scatter by aggregators. In theory, the rings
// take 2 - 2/P times as long.
func inNetwork() *row {
	const block = 1 << 20
	r := &row{
		name: "inc",
		about: "Allgather next to a Reduce-Scatter, 1 MiB, at 200 Mbit/s, with aggregators in the switches: two rings over " +
			"multicast and in-network reduction; bytes per Reduce-Scatter on the links of hosts",
		unit:  "us or bytes",
		needs: []need{root},
		given: values{"N": block},
	}
	for _, c := range []struct {
		network string
		hosts   float64
		wanted  float64
	}{{"star:8", 8, 1.6}, {"fat-tree:16,4,2", 16, 1.7}} {
		for _, loss := range []struct {
			name, flag string
			wanted     float64
		}{{"", "", c.wanted}, {", loss 1%", " --loss 1%", 1.3}} {
			at := c.network + loss.name + ", "
			m := inLab(at+"{algo}", c.network+" --rate 200mbit --inc"+loss.flag,
				"allgather+reduce-scatter --algo mcast+inc,ring+ring -b 1M -n 3 -w 1")
			m.read = readAggregated
			r.runs = append(r.runs, m)
			r.figures = append(r.figures,
				over(at+"ring+ring / mcast+inc, time", at+"ring+ring", at+"mcast+inc").least(loss.wanted),
				figure{name: at + "idle processors, mcast+inc", of: at + "mcast+inc idle", unit: "%"},
				figure{name: at + "idle processors, ring+ring", of: at + "ring+ring idle", unit: "%"})
		}
		at := c.network + ", reduce-scatter"
		m := inLab(at, c.network+" --rate 200mbit --inc", "reduce-scatter --algo inc -b 1M -n 10 -w 0")
		m.read = readPorts
		r.runs = append(r.runs, m)
		up := over(at+", bytes up / (P-1)N, busiest host", at+" up", "N").most(1.05)
		least := over(at+", bytes up / (P-1)N, least busy host", at+" least up", "N").least(1)
		up.scale, least.scale = c.hosts-1, c.hosts-1
		r.figures = append(r.figures, up, least,
			over(at+", bytes down / N, busiest host", at+" down", "N").most(1.05),
			over(at+", bytes down / N, least busy host", at+" least down", "N").least(1))
	}
	return r
}

func small() *row {
	const (
		ours, theirs = "allcast-auto", "open-mpi-default"
		sizes        = "1,64,1K,4K,16K,32K,64K"
	)
	r := &row{
		name:  "small",
		about: "Small Broadcasts and Allgathers on 8 hosts: how many times faster than Open MPI's default",
		needs: []need{root, program("mpirun.openmpi"), program("mpicc.openmpi")},
		runs: []measurement{{
			name: "{op} {size}, {contestant}", read: readPeers,
			line: "go run ./bench/peers -json -rounds 1 -only " + ours + "," + theirs +
				" -ops broadcast,allgather -sizes " + sizes,
		}},
	}
	for size := range strings.SplitSeq(sizes, ",") {
		at := "broadcast " + size + ", "
		r.figures = append(r.figures, over(at+"time of Open MPI / Allcast", at+theirs, at+ours).least(1))
	}
	for size := range strings.SplitSeq(sizes, ",") {
		at := "allgather " + size + ", "
		f := over(at+"time of Open MPI / Allcast", at+theirs, at+ours)
		if size == "4K" {
			f = f.least(1)
		}
		r.figures = append(r.figures, f)
	}
	return r
}

func limit() *row {
	const bare = "bare-multicast"
	r := &row{
		name:  "limit",
		about: "Broadcast and Allgather on 8 hosts: time of a bare multicast sender, without any protocol, over Allcast's",
		needs: []need{root},
		runs: []measurement{{
			name: "{op} {size}, {contestant}", read: readPeers,
			line: "go run ./bench/peers -json -rounds 1 -only " + bare + ",allcast-auto,allcast-mcast" +
				" -ops broadcast,allgather -sizes 256K,1M",
		}},
	}
	for _, c := range []struct {
		at     string
		wanted float64
	}{{"broadcast 256K, ", 0.5}, {"broadcast 1M, ", 0.75}, {"allgather 256K, ", 0.6}, {"allgather 1M, ", 0.8}} {
		r.figures = append(r.figures,
			over(c.at+"bare multicast / auto", c.at+bare, c.at+"allcast-auto").least(c.wanted),
			over(c.at+"bare multicast / mcast", c.at+bare, c.at+"allcast-mcast"))
	}
	return r
}

func receiver() *row {
	const configurations = "tcp,host,bpf-sockfilter,bpf-tcx"
	r := &row{
		name:  "receiver",
		about: "Broadcast of 64 MiB to one receiving core: rate by datapath against one TCP stream on the same kind of link",
		unit:  "GB/s",
		needs: []need{root, cores(2)},
		runs: []measurement{{
			name: "{configuration}", read: readReceive,
			line: "go run ./bench/receive -rounds 1 -only " + configurations,
		}},
	}
	for _, c := range []struct {
		name   string
		wanted float64
	}{{"host", 0.8}, {"bpf-sockfilter", 0.95}, {"bpf-tcx", 0}} {
		r.figures = append(r.figures, over(c.name+" / tcp, rate", c.name, "tcp").least(c.wanted),
			figure{name: c.name + ", repaired", of: c.name + " repaired", unit: "%"}.most(0.1))
	}
	return r
}

// controlBytes excludes joining: it compares two jobs that differ in the number of Broadcasts only.
func controlBytes() *row {
	const (
		hosts, leaves = 188, 12
		block         = 64 << 10
		few, many     = 1, 21
	)
	r := &row{
		name: "control",
		about: "Bytes on all links per Broadcast of 64 KiB on 188 hosts, against the payload once per link of the tree; " +
			"the difference of two jobs excludes joining",
		unit:  "bytes",
		needs: []need{root},
		// The links of the root, from its leaf to the spine, from the spine to the other leaves, and of the
		// other hosts.
		given: values{"minimum": (hosts + leaves) * block},
		derive: func(v values) {
			v["bytes per Broadcast"] = (v["many link bytes"] - v["few link bytes"]) / (many - few)
		},
		figures: []figure{over("bytes per Broadcast / minimum", "bytes per Broadcast", "minimum").most(1.25)},
	}
	for _, c := range []struct {
		name  string
		iters int
	}{{"few", few}, {"many", many}} {
		r.runs = append(r.runs, inLab(c.name, fmt.Sprintf("fat-tree:%d,%d,6", hosts, leaves),
			fmt.Sprintf("broadcast --algo mcast -b 64K -n %d -w 0", c.iters)))
	}
	return r
}

func auto() *row {
	const (
		networks   = "star:8"
		operations = "broadcast,allgather"
		sizes      = "1,64,1K,4K,16K,64K,256K,1M,4M,16M"
	)
	r := &row{
		name:  "auto",
		about: "The choice of auto against the best fixed choice, by size; each round is a job that runs each choice 5 times",
		needs: []need{root},
		runs: []measurement{{
			name: "{network} {op} {size}", read: readAuto, judges: true,
			line: "go run ./bench/auto -json -jobs 1 -rounds 5 -max 2s -networks " + networks + " -operations " + operations +
				" -sizes " + sizes,
		}},
	}
	for network := range strings.SplitSeq(networks, ",") {
		for op := range strings.SplitSeq(operations, ",") {
			for size := range strings.SplitSeq(sizes, ",") {
				name := network + " " + op + " " + size
				r.figures = append(r.figures, figure{name: name + ", time of auto / best", of: name, unit: "x"}.most(1.15))
			}
		}
	}
	return r
}

func joining() *row {
	r := &row{
		name: "joining", about: "Joining on one machine: growth of the time, and of the bytes of rank 0, against P",
		unit: "s or bytes",
		runs: []measurement{{
			name: "P {ranks}", read: readJoin, line: "go run ./bench/join -rounds 1 -ranks 16,64,188,512",
		}},
	}
	const first = 16
	for _, p := range []int{64, 188, 512} {
		for _, c := range []struct{ what, suffix string }{{"time", ""}, {"bytes of rank 0", " bytes"}} {
			f := over(fmt.Sprintf("P %d / P %d, %s, over the ratio of P", p, first, c.what),
				fmt.Sprintf("P %d%s", p, c.suffix), fmt.Sprintf("P %d%s", first, c.suffix)).most(1)
			f.scale = float64(p) / first
			r.figures = append(r.figures, f)
		}
	}
	return r
}

func simulator() *row {
	return &row{
		name: "simulator", about: "Large simulations: time and memory",
		rounds: 1, // simulations are deterministic
		runs: []measurement{
			{
				name: "allgather 4096", read: readSim,
				line: "allcast sim allgather --topology fat-tree3:4096,32 --bytes 64K --json",
			},
			{
				name: "broadcast 32768", read: readSim,
				line: "allcast sim broadcast --topology fat-tree3:32768,64 --bytes 64K --json",
			},
		},
		figures: []figure{
			figure{name: "Allgather among 4,096 hosts, time", of: "allgather 4096", unit: "min"}.most(15),
			figure{name: "Allgather among 4,096 hosts, memory", of: "allgather 4096 memory", unit: "GiB"}.most(16),
			{name: "Broadcast to 32,768 hosts, time", of: "broadcast 32768", unit: "min"},
			{name: "Broadcast to 32,768 hosts, memory", of: "broadcast 32768 memory", unit: "GiB"},
		},
	}
}
