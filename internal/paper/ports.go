package paper

import (
	"context"
	"fmt"

	"github.com/allcast/allcast/internal/topology"
)

// Compared is an operation and the algorithms to compare, multicast first.
type Compared struct {
	Op    string
	Algos []string
}

// Figure12 lists what Figure 12 compares.
var Figure12 = []Compared{
	{"broadcast", []string{"mcast", "knomial", "binary"}},
	{"allgather", []string{"mcast", "ring"}},
}

// portTraffic is the traffic of one algorithm at the ports of all switches.
type portTraffic struct {
	Network  string
	Op, Algo string
	Bytes    int64   // on all links
	Minimum  float64 // payload on a minimal tree
	Ratio    float64 // to multicast
	Repaired bool    // whether a lab lost datagrams of multicast and fetched them, which adds traffic
}

// simulatedPorts counts the payload on the links of the simulated testbed, with 64 KiB per rank as in the paper.
func simulatedPorts(ctx context.Context, e *Env) ([]portTraffic, error) {
	return cached(e, "simulated ports", func() ([]portTraffic, error) {
		g := mustParse(Testbed)
		var all []portTraffic
		steps := count{env: e, total: 5}
		for _, f := range Figure12 {
			var first int64
			for _, algo := range f.Algos {
				steps.next("%s by %s on %s", f.Op, algo, Testbed)
				r, err := run(ctx, g, f.Op, algo, 64<<10, 0)
				if err != nil {
					return nil, err
				}
				if first == 0 {
					first = r.PayloadLinkBytes
				}
				all = append(all, portTraffic{
					Testbed, f.Op, algo, r.PayloadLinkBytes, float64(r.LinkBytesBound),
					float64(r.PayloadLinkBytes) / float64(first), false,
				})
			}
		}
		return all, nil
	})
}

// labPorts reads the counters of the switches of a lab. All traffic counts, joining and control included. The links are
// slow, so that the processes of one machine keep up with them.
func labPorts(ctx context.Context, e *Env) ([]portTraffic, error) {
	return cached(e, "lab ports", func() ([]portTraffic, error) {
		spec, iterations, bytes := "fat-tree:32,4,2", 10, int64(256<<10)
		if e.Quick {
			spec, iterations = "fat-tree:12,3,2", 5
		}
		g := mustParse(spec)
		var all []portTraffic
		steps := count{env: e, total: 5}
		for _, f := range Figure12 {
			var first uint64
			repaired := false
			for _, algo := range f.Algos {
				steps.next("%s by %s in the lab, on %s", f.Op, algo, spec)
				r, err := RunInLab(ctx, e.Self, []string{"--name", labName(), "--topology", spec, "--rate", labRate},
					[]string{f.Op, "--algo", algo, "-b", fmt.Sprint(bytes), "-n", fmt.Sprint(iterations), "-w", "0"})
				if err != nil {
					return nil, err
				}
				if first == 0 {
					first = r.Counters.LinkBytes
				}
				repaired = repaired || r.Runs[0].Repaired > 0
				all = append(all, portTraffic{
					spec, f.Op, algo, int64(r.Counters.LinkBytes), float64(iterations) * minimalTraffic(g, f.Op, bytes),
					float64(r.Counters.LinkBytes) / float64(first), repaired,
				})
			}
		}
		return all, nil
	})
}

// minimalTraffic returns the payload of one operation on minimal trees.
func minimalTraffic(g *topology.Graph, op string, bytes int64) float64 {
	n := float64(bytes) * float64(g.Tree(0).Links(0))
	if op == "allgather" {
		n *= float64(g.Hosts)
	}
	return n
}
