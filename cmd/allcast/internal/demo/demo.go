// Package demo is "allcast demo": Broadcast and Allgather on one machine, multicast next to the other algorithms.
package demo

import (
	"context"
	"fmt"
	"slices"

	"github.com/allcast/allcast"
	"github.com/allcast/allcast/cmd/allcast/internal/bench"
	"github.com/allcast/allcast/cmd/allcast/internal/cli"
)

const (
	maxRanks = 32 // more would take too long on one machine
	bytes    = 1 << 20
	iters    = 5
	warmup   = 1
)

// Command is "allcast demo".
type Command struct {
	Ranks  int  `default:"8" placeholder:"N" help:"Number of ranks, 2 to 32 (default 8)."`
	AsRank bool `name:"as-rank" hidden:"" help:"Join as one of the demo's ranks."`
}

// Help implements kong.HelpProvider.
func (Command) Help() string {
	return `Runs Broadcast and Allgather of 1M per rank over multicast and by every other algorithm. Each rank is a
process on this machine, and every byte is verified. Prints how long each algorithm takes and how much the
busiest rank sends. Needs no privileges and no network.

Example:
  allcast demo --ranks 4`
}

// Run starts the ranks, or is one of them.
func (c *Command) Run(e *cli.Env) error {
	if c.Ranks < 2 || c.Ranks > maxRanks {
		return cli.Usagef("--ranks %d: want 2 to %d", c.Ranks, maxRanks)
	}
	if c.AsRank {
		return runRank(e)
	}
	args := []string{"demo", "--as-rank", fmt.Sprintf("--ranks=%d", c.Ranks)}
	if e.JSON {
		args = append(args, "--json")
	}
	return e.LaunchSelfQuietly(c.Ranks, args)
}

// row is the result of one algorithm.
type row struct {
	*bench.Result
	Verified bool `json:"verified"`
}

func runRank(e *cli.Env) error {
	var rows []row
	rank := 0
	err := bench.Run(context.Background(), allcast.Options{NoCalibration: true}, func(b *bench.Bench) (err error) {
		if works, why := b.Comm.Multicast(); !works {
			return &bench.CaseError{Case: "demo", Err: &allcast.NoMulticastError{Reason: why}}
		}
		rank = b.Comm.Rank()
		rows, err = measure(context.Background(), e, b)
		return err
	})
	if err != nil {
		return err
	}
	wrong := slices.ContainsFunc(rows, func(r row) bool { return !r.Verified })
	if rank == 0 {
		if err := report(e, rows, wrong); err != nil {
			return err
		}
	}
	if wrong {
		return cli.StatusError(cli.StatusWrong)
	}
	return nil
}

// measure runs every algorithm of both operations.
func measure(ctx context.Context, e *cli.Env, b *bench.Bench) (rows []row, err error) {
	for _, op := range []string{"broadcast", "allgather"} {
		for _, algo := range allcast.Algorithms(op) {
			job := &bench.Job{Op: op, Iters: iters, Warmup: warmup, Check: true, Chains: 1, Subgroups: 1}
			r, err := b.Measure(ctx, job, algo, bytes)
			if err != nil {
				return nil, &bench.CaseError{Case: op + " by " + algo, Err: err}
			}
			rows = append(rows, row{r, r.Wrong == 0})
			if e.JSON && b.Comm.Rank() == 0 {
				if err := e.PrintJSON(rows[len(rows)-1]); err != nil {
					return nil, err
				}
			}
		}
	}
	return rows, nil
}

// report prints the results on rank 0.
func report(e *cli.Env, rows []row, wrong bool) error {
	summary := gain(rows)
	switch {
	case wrong:
		e.Message("some of the data was wrong")
	case e.JSON:
		e.Message("%s", summary)
	}
	if e.JSON {
		return nil
	}
	if err := e.PrintTable(table(rows)); err != nil {
		return err
	}
	return e.Print(summary + "\n" + closing + "\n")
}

// closing says what the reader has seen, and what to do next.
const closing = `You have seen every rank send its block once, and every byte arrive, because the network copies;
next, "allcast doctor" checks whether your network can do it, and "allcast perf allgather" measures how fast.`

func table(rows []row) *cli.Table {
	t := &cli.Table{}
	t.Note("%d processes on this machine, over loopback. bytes: what one rank sends, 1M here.", rows[0].Ranks)
	t.Note("time: from start to end of the slowest rank, median of %d. "+
		"sent: MiB that the busiest rank handed to the network.", iters)
	t.Note("Loopback copies each datagram once per receiver: this machine does the work that a switch would do.")
	t.Row("op", "algo", "time_ms", "sent_MiB", "vs_mcast", "repaired_bytes", "verified")
	var mcast *bench.Result
	for _, r := range rows {
		if r.Algo == "mcast" {
			mcast = r.Result
		}
		t.Row(r.Op, r.Algo, r.Time.P50/1e3, mebibytes(r.SentBytes),
			fmt.Sprintf("%.2fx", ratio(r.SentBytes, mcast.SentBytes)), r.RepairedBytes, cli.YesNo(r.Verified))
	}
	return t
}

// gain compares Allgather by ring with multicast in this run.
func gain(rows []row) string {
	var mcast, ring *bench.Result
	for _, r := range rows {
		switch r.Op + " " + r.Algo {
		case "allgather mcast":
			mcast = r.Result
		case "allgather ring":
			ring = r.Result
		}
	}
	speed := fmt.Sprintf("and took %.2f times as long", ring.Time.P50/mcast.Time.P50)
	if ring.Time.P50 < mcast.Time.P50 {
		speed = fmt.Sprintf("but was faster here, in %.2f of the time", ring.Time.P50/mcast.Time.P50)
	}
	return fmt.Sprintf("Allgather at %d ranks: with ring the busiest rank injected %.2f MiB, with multicast %.2f MiB: "+
		"ring injects %.2f times as much, %s.", mcast.Ranks,
		mebibytes(ring.SentBytes), mebibytes(mcast.SentBytes), ratio(ring.SentBytes, mcast.SentBytes), speed)
}

func ratio(a, b int64) float64 { return float64(a) / float64(max(1, b)) }

func mebibytes(n int64) float64 { return float64(n) / (1 << 20) }
