package model_test

import (
	"fmt"
	"testing"

	"github.com/allcast/allcast/internal/model"
	"github.com/allcast/allcast/internal/topology"
)

// traffic returns the counts for a network by operation and algorithm.
func traffic(t *testing.T, spec string) map[string]model.Traffic {
	t.Helper()
	g, err := topology.Parse(spec)
	if err != nil {
		t.Fatal(err)
	}
	all, err := model.CountTraffic(g)
	if err != nil {
		t.Fatal(err)
	}
	byName := map[string]model.Traffic{}
	for _, c := range all {
		if c.Topology != g.Name || c.Nodes != g.Hosts {
			t.Errorf("%s: %+v", spec, c)
		}
		byName[c.Op+"/"+c.Algo] = c
	}
	return byName
}

// Claim C1, Figure 2: 1024 hosts, radix-32 switches, counted on the graph.
func TestPaperC1(t *testing.T) {
	got := traffic(t, "fat-tree3:1024,32")
	for name, want := range map[string]int64{
		"allgather/linear":             5732352,
		"allgather/ring":               2234232,
		"allgather/recursive-doubling": 5732352,
		"allgather/mcast":              1118208,
		"broadcast/mcast":              1118208 / 1024,
	} {
		if got[name].BlockLinks != want {
			t.Errorf("%s: %d block-link traversals, want %d", name, got[name].BlockLinks, want)
		}
	}
	if r := got["allgather/ring"].Ratio; r < 1.99 || r > 2.01 {
		t.Errorf("ring is %.3f times multicast, the paper says 2", r)
	}
}

// On a star, a multicast block crosses one link up and P-1 links down. Without multicast it crosses two
// links for each of P-1 receivers.
func TestTrafficOnAStar(t *testing.T) {
	for _, p := range []int64{2, 3, 8, 13} {
		got := traffic(t, fmt.Sprintf("star:%d", p))
		for _, algo := range []string{"linear", "ring", "bruck"} {
			if c := got["allgather/"+algo]; c.BlockLinks != 2*p*(p-1) {
				t.Errorf("%+v, want %d", c, 2*p*(p-1))
			}
		}
		if c := got["allgather/mcast"]; c.BlockLinks != p*p || c.Ratio != 1 {
			t.Errorf("%+v, want %d", c, p*p)
		}
		for _, algo := range []string{"binomial", "knomial", "binary", "chain"} {
			c := got["broadcast/"+algo]
			if c.BlockLinks != 2*(p-1) || c.Ratio != float64(2*(p-1))/float64(p) {
				t.Errorf("%+v, want %d", c, 2*(p-1))
			}
		}
	}
}

// The counts from plans equal those that the graph derives from its routes.
func TestTrafficIsTheGraphs(t *testing.T) {
	for _, spec := range []string{
		"star:1", "star:7", "fat-tree:188,12,6", "fat-tree:33,4,3", "fat-tree3:64,8", "fat-tree3:100,8",
	} {
		g, err := topology.Parse(spec)
		if err != nil {
			t.Fatal(err)
		}
		got := traffic(t, spec)
		var linear int64
		for pair := range g.Hosts * g.Hosts {
			linear += int64(g.Hops(pair/g.Hosts, pair%g.Hosts))
		}
		for name, want := range map[string]int64{
			"allgather/linear": linear, "allgather/ring": g.RingTraversals(), "allgather/mcast": g.TreeTraversals(),
		} {
			if got[name].BlockLinks != want {
				t.Errorf("%s: %s: %d, the graph counts %d", spec, name, got[name].BlockLinks, want)
			}
		}
	}
}

// Multicast never crosses more links than another algorithm, and a single host sends nothing.
func TestTrafficOfMulticastIsLeast(t *testing.T) {
	for _, spec := range []string{"star:2", "star:9", "fat-tree:188,12,6", "fat-tree:40,40,2", "fat-tree3:200,16"} {
		for name, c := range traffic(t, spec) {
			if c.Ratio < 1 {
				t.Errorf("%s on %s: %+v", name, spec, c)
			}
		}
	}
	for name, c := range traffic(t, "star:1") {
		if c.BlockLinks != 0 || c.Ratio != 1 {
			t.Errorf("%s on one host: %+v", name, c)
		}
	}
}

func TestTrafficLimit(t *testing.T) {
	g, err := topology.Parse(fmt.Sprintf("star:%d", model.MaxTrafficHosts+1))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := model.CountTraffic(g); err == nil {
		t.Errorf("%d hosts are accepted", g.Hosts)
	}
}
