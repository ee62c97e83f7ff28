package main

import (
	"fmt"
	"math/bits"
	"time"

	"github.com/allcast/allcast/internal/sim"
	"github.com/allcast/allcast/internal/topology"
)

// demoMaxRanks keeps the demo within seconds.
const demoMaxRanks = 256

const demoBytes = 1 << 20

type demoCmd struct {
	Ranks int `default:"16" placeholder:"N" help:"Number of ranks, 2 to 256 (default 16)."`
}

func (demoCmd) Help() string {
	return `Broadcast and Allgather of 1M a rank on a simulated fat-tree, once clean and once with 1% of the datagrams lost, each verified byte for byte. No privileges, no network.

Example:
  allcast demo --ranks 32`
}

// demoRow is one run of the demo, and what it would have cost without multicast.
type demoRow struct {
	*sim.Result
	Simulated bool    `json:"simulated"`
	Loss      float64 `json:"loss"`
	P2PAlgo   string  `json:"p2p_algo"`       // the usual algorithm without multicast
	P2PSent   int64   `json:"p2p_sent_bytes"` // payload its busiest rank has to inject; computed, not simulated
}

func (c *demoCmd) Run(a *app) error {
	if c.Ranks < 2 || c.Ranks > demoMaxRanks {
		return usagef("--ranks %d: want 2 to %d", c.Ranks, demoMaxRanks)
	}
	// Four hosts a leaf and two spines: fat-tree:16,4,2 for sixteen.
	g, err := topology.Parse(fmt.Sprintf("fat-tree:%d,%d,2", c.Ranks, (c.Ranks+3)/4))
	if err != nil {
		return err
	}
	var rows []demoRow
	for _, op := range []string{"broadcast", "allgather"} {
		for _, loss := range []float64{0, 0.01} {
			row, err := a.demoRun(op, loss, g)
			if err != nil {
				return err
			}
			rows = append(rows, row)
			if a.json {
				if err := a.printJSON(row); err != nil {
					return err
				}
			}
		}
	}
	if !a.json {
		if err := demoTable(g, rows).print(a.stdout); err != nil {
			return err
		}
	}
	results := make([]*sim.Result, len(rows))
	for i, r := range rows {
		results[i] = r.Result
	}
	return a.verdict(results)
}

func (a *app) demoRun(op string, loss float64, g *topology.Graph) (demoRow, error) {
	r, err := a.simulateOne(sim.Config{
		Op: op, Algo: "mcast", Topology: g, Bytes: demoBytes,
		Chains: 1, Subgroups: 1, ChainBy: "rank", Chunk: 4096,
		Rate: 100e9, Latency: 500 * time.Nanosecond, Flow: "none",
		Loss: loss, Timeout: 10 * time.Second, Seed: 1,
	})
	if err != nil {
		return demoRow{}, err
	}
	row := demoRow{Result: r, Simulated: true, Loss: loss}
	row.P2PAlgo, row.P2PSent = withoutMulticast(op, g.Hosts)
	return row, nil
}

// withoutMulticast is what the busiest rank has to inject point to point: in a
// ring Allgather each rank forwards everybody's block but its right neighbour's,
// in a binomial tree the root sends to ceil(log2 P) children.
func withoutMulticast(op string, ranks int) (algo string, sent int64) {
	if op == "allgather" {
		return "ring", int64(ranks-1) * demoBytes
	}
	return "binomial", int64(bits.Len(uint(ranks-1))) * demoBytes
}

func demoTable(g *topology.Graph, rows []demoRow) *table {
	t := &table{}
	t.note("Simulated: the real protocol on a virtual network (%s, 100 Gbit/s, 500 ns a link), in virtual time.", g.Name)
	t.note("bytes: what one rank sends, 1M here. time and bound in us. links: MiB on all links, headers and repairs")
	t.note("included, least: payload on a minimal tree. crossings: how often a byte crossed the same link at most.")
	t.note("sent: MiB that the busiest rank injected, beside the payload it would have to without multicast (computed).")
	t.row("op", "loss", "bytes", "time_us", "bound_us", "links", "least", "crossings", "sent", "without_multicast", "repaired", "verified")
	for _, r := range rows {
		t.row(r.Op, fmt.Sprintf("%g%%", r.Loss*100), r.Bytes, r.TimeUS, r.BoundUS, mebibytes(r.LinkBytes), mebibytes(r.LinkBytesBound), r.MaxCrossings,
			mebibytes(r.SentBytes), fmt.Sprintf("%.2f (%s)", mebibytes(r.P2PSent), r.P2PAlgo),
			fmt.Sprintf("%d of %d", r.RepairedChunks, r.ChunksTotal), yesNo(r.Verified))
	}
	return t
}

func mebibytes(n int64) float64 { return float64(n) / (1 << 20) }
