package paper

import (
	"context"
	"fmt"

	"github.com/allcast/allcast/internal/sim"
)

// phaseRow holds the Allgathers of one network, by block size.
type phaseRow struct {
	Nodes   int
	Results []*sim.Result
}

// phaseSizes are the block sizes of Figure 10, in KiB.
var phaseSizes = []int64{4, 16, 64, 256, 1024}

// phaseRuns shows where the time of an Allgather goes: claim C7, Figure 10. The sizes are in KiB.
func phaseRuns(ctx context.Context, e *Env) (rows []phaseRow, sizes []int64, err error) {
	nodes, sizes := []int{2, 4, 8, 16, 32, 64, 128, 188}, phaseSizes
	if e.Quick {
		nodes, sizes = []int{2, 4, 8, 16, 32, 64, 188}, sizes[:4]
	}
	rows, err = cached(e, "phases", func() (rows []phaseRow, err error) {
		steps := count{env: e, total: len(nodes) * len(sizes)}
		for _, n := range nodes {
			spec := fmt.Sprintf("star:%d", n)
			if n > 16 {
				spec = fmt.Sprintf("fat-tree:%d,%d,6", n, (n+15)/16)
			}
			results := make([]*sim.Result, len(sizes))
			for i, s := range sizes {
				steps.next("allgather of %d KiB on %s", s, spec)
				if results[i], err = run(ctx, mustParse(spec), "allgather", "mcast", s<<10, 0); err != nil {
					return nil, fmt.Errorf("%d nodes, %d KiB: %w", n, s, err)
				}
			}
			rows = append(rows, phaseRow{n, results})
		}
		return rows, nil
	})
	return rows, sizes, err
}

// phases writes docs/phases.md.
func phases() (string, error) {
	rows, sizes, err := phaseRuns(context.Background(), pageEnv())
	if err != nil {
		return "", err
	}
	return render("phases.md.tmpl", map[string]any{"Sizes": sizes, "Rows": rows})
}

// movement returns the share of the multicast phase in the time of a run.
func movement(r *sim.Result) float64 { return r.Phases.Multicast / r.TimeUS }

// share writes the share of the multicast phase, bold if it is what the paper claims.
func share(r *sim.Result) string {
	if m := movement(r); m < 0.99 {
		return fmt.Sprintf("%.1f %%", 100*m)
	}
	return fmt.Sprintf("**%.1f %%**", 100*movement(r))
}

// overBound returns the time of a run against its lower bound.
func overBound(r *sim.Result) string { return fmt.Sprintf("%.3f", r.TimeUS/r.BoundUS) }
