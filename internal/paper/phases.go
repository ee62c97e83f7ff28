package paper

import (
	"bytes"
	"fmt"
	"os"
	"time"

	"github.com/allcast/allcast/internal/sim"
	"github.com/allcast/allcast/internal/topology"
)

var (
	nodes = []int{2, 4, 8, 16, 32, 64, 128, 188}
	sizes = []int64{4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20}
)

// phases shows where the time of an Allgather goes: claim C7, Figure 10.
func phases() (string, error) {
	var share, parts, bound bytes.Buffer
	for _, b := range []*bytes.Buffer{&share, &parts, &bound} {
		b.WriteString("| nodes |")
		for _, s := range sizes {
			fmt.Fprintf(b, " %d KiB |", s>>10)
		}
		b.WriteString("\n|--:|--:|--:|--:|--:|--:|\n")
	}
	for _, n := range nodes {
		g, err := testbed(n)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(&share, "| %d |", n)
		fmt.Fprintf(&parts, "| %d |", n)
		fmt.Fprintf(&bound, "| %d |", n)
		for _, s := range sizes {
			r, err := sim.Run(sim.Config{
				Op: "allgather", Algo: "mcast", Topology: g, Bytes: s, Chunk: 4096, Chains: 1, Subgroups: 1,
				Rate: 56e9, Latency: 500 * time.Nanosecond, Seed: 1,
			})
			if err != nil {
				return "", err
			}
			if !r.Verified {
				return "", fmt.Errorf("%d nodes, %d bytes: not verified", n, s)
			}
			cell := fmt.Sprintf("%.1f %%", 100*r.Phases.Multicast/r.TimeUS)
			if r.Phases.Multicast >= 0.99*r.TimeUS {
				cell = "**" + cell + "**"
			}
			fmt.Fprintf(&share, " %s |", cell)
			fmt.Fprintf(&parts, " %.1f / %.0f / %.1f |", r.Phases.Barrier, r.Phases.Multicast, r.Phases.Handshake)
			fmt.Fprintf(&bound, " %.3f |", r.TimeUS/r.BoundUS)
			fmt.Fprintf(os.Stderr, "%d nodes, %d KiB: %.0f us\n", n, s>>10, r.TimeUS)
		}
		share.WriteString("\n")
		parts.WriteString("\n")
		bound.WriteString("\n")
	}
	return fmt.Sprintf(`# Where the time of an Allgather goes

%[1]smake docs%[1]s writes this page. For each cell it runs

    allcast sim allgather --topology T --algo mcast --bytes N --rate 56gbit --json

T is %[1]sstar:P%[1]s up to 16 nodes and %[1]sfat-tree:P,L,6%[1]s with 16 hosts per leaf above. The last one is
%[1]sfat-tree:188,12,6%[1]s, the paper's testbed. No chunk was lost, so there is no fetch phase. All runs
were verified.

## Share of the multicast phase (claim C7, Figure 10)

The paper says that from 16 nodes on 99 %% of the progress time is data movement. Cells at 99 %% or
more are bold. The share also depends on the size of the block, because the barrier costs log P
messages for any size.

%[2]s
## Barrier / multicast / handshake, microseconds

Times of the rank that completed last.

%[3]s
## Time against the lower bound

The bound is the time of the busiest port's traffic at line rate, headers included, and the latency
of one path. One chain takes at least P/(P-1) of it, because a rank does not receive while it sends.

%[4]s`, "`", share.String(), parts.String(), bound.String()), nil
}

func testbed(n int) (*topology.Graph, error) {
	if n <= 16 {
		return topology.Parse(fmt.Sprintf("star:%d", n))
	}
	return topology.Parse(fmt.Sprintf("fat-tree:%d,%d,6", n, (n+15)/16))
}
