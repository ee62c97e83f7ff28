package paper

import (
	"fmt"

	"github.com/allcast/allcast/internal/sim"
	"github.com/allcast/allcast/internal/topology"
)

// phases shows where the time of an Allgather goes: claim C7, Figure 10.
func phases() (string, error) {
	type row struct {
		Nodes   int
		Results []*sim.Result // by size
	}
	var rows []row
	sizes := []int64{4, 16, 64, 256, 1024} // KiB
	for _, nodes := range []int{2, 4, 8, 16, 32, 64, 128, 188} {
		spec := fmt.Sprintf("star:%d", nodes)
		if nodes > 16 {
			spec = fmt.Sprintf("fat-tree:%d,%d,6", nodes, (nodes+15)/16)
		}
		g, err := topology.Parse(spec)
		if err != nil {
			return "", err
		}
		results := make([]*sim.Result, len(sizes))
		for i, s := range sizes {
			if results[i], err = run(g, "allgather", "mcast", s<<10, 0); err != nil {
				return "", fmt.Errorf("%d nodes, %d KiB: %w", nodes, s, err)
			}
		}
		rows = append(rows, row{nodes, results})
	}
	return render("phases.md.tmpl", map[string]any{"Sizes": sizes, "Rows": rows})
}

// share returns the share of the multicast phase in the time of a run, bold if it is what the paper claims.
func share(r *sim.Result) string {
	if r.Phases.Multicast >= 0.99*r.TimeUS {
		return fmt.Sprintf("**%.1f %%**", 100*r.Phases.Multicast/r.TimeUS)
	}
	return fmt.Sprintf("%.1f %%", 100*r.Phases.Multicast/r.TimeUS)
}

// overBound returns the time of a run against its lower bound.
func overBound(r *sim.Result) string { return fmt.Sprintf("%.3f", r.TimeUS/r.BoundUS) }
