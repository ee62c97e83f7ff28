// Command docs makes the measured tables under docs/: run it from the root of
// the repository with `make docs`. Arguments name the pages to make: all without.
package main

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/allcast/allcast/internal/sim"
	"github.com/allcast/allcast/internal/topology"
)

func main() {
	pages := []struct {
		file string
		make func(string) error
	}{{"docs/phases.md", phases}, {"docs/collectives.md", collectives}, {"docs/dpa.md", accelerator}}
	for _, p := range pages {
		if len(os.Args) > 1 && !slices.Contains(os.Args[1:], p.file) {
			continue
		}
		if err := p.make(p.file); err != nil {
			fmt.Fprintln(os.Stderr, "docs:", p.file, err)
			os.Exit(1)
		}
	}
}

var (
	nodes = []int{2, 4, 8, 16, 32, 64, 128, 188}
	sizes = []int64{4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20}
)

// phases is claim C7, Figure 10: where the time of an Allgather goes.
func phases(file string) error {
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
			return err
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
				return err
			}
			if !r.Verified {
				return fmt.Errorf("%d nodes, %d bytes: not verified", n, s)
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
	text := fmt.Sprintf(`# Where the time of an Allgather goes

Made by %[1]smake docs%[1]s, which runs for each cell

    allcast sim allgather --topology T --algo mcast --bytes N --rate 56gbit --json

T being %[1]sstar:P%[1]s up to 16 nodes and %[1]sfat-tree:P,L,6%[1]s with 16 hosts a leaf above, %[1]sfat-tree:188,12,6%[1]s at last: the paper's testbed. Nothing was
lost, so there is no fetch phase. All runs were verified.

## Share of the multicast phase (claim C7, Figure 10)

The paper says that from 16 nodes on 99 %% of the progress time is data movement. Cells at 99 %% or more are bold: it depends on the size of the
block too, because the barrier costs log P messages whatever it is.

%[2]s
## Barrier / multicast / handshake, microseconds

Of the rank that completed last.

%[3]s
## Time against the lower bound

The bound is what the busiest port must carry, headers included, at line rate, and one path's latency. One chain takes P/(P-1) of it at best, as a rank does
not receive while it sends.

%[4]s`, "`", share.String(), parts.String(), bound.String())
	return os.WriteFile(file, []byte(text), 0o644)
}

func testbed(n int) (*topology.Graph, error) {
	if n <= 16 {
		return topology.Parse(fmt.Sprintf("star:%d", n))
	}
	return topology.Parse(fmt.Sprintf("fat-tree:%d,%d,6", n, (n+15)/16))
}
