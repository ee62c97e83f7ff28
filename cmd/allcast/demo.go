package main

import (
	"context"
	"fmt"
	"slices"

	"github.com/allcast/allcast"
)

const (
	demoMaxRanks = 32 // on one machine, in seconds
	demoBytes    = 1 << 20
	demoIters    = 5
	demoWarmup   = 1
)

type demoCmd struct {
	Ranks  int  `default:"8" placeholder:"N" help:"Number of ranks, 2 to 32 (default 8)."`
	AsRank bool `name:"as-rank" hidden:"" help:"Take part as one of the demo's ranks."`
}

func (demoCmd) Help() string {
	return `Broadcast and Allgather of 1M a rank by as many processes on this machine, over multicast and by every other algorithm, each verified byte for byte: how long it takes, and how much the busiest rank has to send. No privileges, no network.

Example:
  allcast demo --ranks 4`
}

func (c *demoCmd) Run(a *app) error {
	if c.Ranks < 2 || c.Ranks > demoMaxRanks {
		return usagef("--ranks %d: want 2 to %d", c.Ranks, demoMaxRanks)
	}
	if c.AsRank {
		return a.demoRank()
	}
	args := []string{"demo", "--as-rank", fmt.Sprintf("--ranks=%d", c.Ranks)}
	if a.json {
		args = append(args, "--json")
	}
	return a.self(c.Ranks, args)
}

// demoRow is one algorithm's result.
type demoRow struct {
	*perfResult
	Verified bool `json:"verified"`
}

func (a *app) demoRank() error {
	ctx := context.Background()
	comm, err := allcast.Join(ctx, allcast.Options{NoCalibration: true})
	if err != nil {
		return joinFailure(err)
	}
	if works, why := comm.Multicast(); !works {
		return leave(comm, &caseError{"demo", &allcast.NoMulticastError{Reason: why}})
	}
	rows, err := a.demoOn(ctx, comm)
	if err != nil {
		return leave(comm, err)
	}
	if err := comm.Close(); err != nil {
		return err
	}
	wrong := slices.ContainsFunc(rows, func(r demoRow) bool { return !r.Verified })
	if comm.Rank() == 0 {
		if err := a.demoReport(rows, wrong); err != nil {
			return err
		}
	}
	if wrong {
		return statusError(statusWrong)
	}
	return nil
}

// demoOn runs everything that the demo shows.
func (a *app) demoOn(ctx context.Context, comm *allcast.Comm) ([]demoRow, error) {
	b, err := newPerfBench(ctx, comm)
	if err != nil {
		return nil, err
	}
	var rows []demoRow
	for _, op := range []string{"broadcast", "allgather"} {
		for _, algo := range allcast.Algorithms(op) {
			job := &perfJob{op: op, iters: demoIters, warmup: demoWarmup, check: true, chains: 1, subgroups: 1}
			r, err := b.measure(ctx, job, algo, demoBytes)
			if err != nil {
				return nil, &caseError{op + " by " + algo, err}
			}
			rows = append(rows, demoRow{r, r.Wrong == 0})
			if a.json && comm.Rank() == 0 {
				if err := a.printJSON(rows[len(rows)-1]); err != nil {
					return nil, err
				}
			}
		}
	}
	return rows, nil
}
