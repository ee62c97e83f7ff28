package perf

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"

	"github.com/allcast/allcast"
	"github.com/allcast/allcast/cmd/allcast/internal/bench"
	"github.com/allcast/allcast/cmd/allcast/internal/cli"
)

// runRank runs the job as one rank. Rank 0 prints the results.
func runRank(e *cli.Env, rank int, job *job) error {
	var raw *cli.File
	if rank == 0 {
		// Before joining, so that a bad path fails before the other ranks have done any work.
		var err error
		if raw, err = createRaw(job.raw); err != nil {
			return err
		}
		defer raw.Discard()
	}
	if job.Overlap && runtime.GOMAXPROCS(0) == 1 {
		runtime.GOMAXPROCS(2) // one thread computes, another one must serve the network
	}
	ctx := context.Background()
	comm, err := bench.Join(ctx, allcast.Options{
		Subgroups: job.Subgroups, Chunk: job.Chunk, NoCalibration: !job.chooses(),
		Secure: job.secure, Integrity: job.integrity,
		Fabric: job.fabric, Device: job.device, Datapath: job.datapath, Hook: job.hook,
	})
	if err != nil {
		return err
	}
	wrong, err := measure(ctx, e, comm, job, raw)
	if err != nil {
		return bench.Leave(comm, err)
	}
	if err := comm.Close(); err != nil {
		return err
	}
	if err := raw.Commit(); err != nil {
		return err
	}
	return verdict(e, comm.Rank(), wrong)
}

// chooses reports whether the library chooses an algorithm.
func (j *job) chooses() bool {
	return slices.ContainsFunc(j.algos, func(a string) bool { return strings.Contains(a, "auto") })
}

// measure runs all sizes and algorithms of a job and returns the number of wrong bytes. Rank 0 writes the times of all
// ranks to raw.
func measure(ctx context.Context, e *cli.Env, comm *allcast.Comm, job *job, raw *cli.File) (wrong int64, err error) {
	b, err := bench.New(ctx, comm)
	if err != nil {
		return 0, err
	}
	if raw != nil {
		b.Raw = raw
	}
	out := &output{
		Env: e, job: job, quiet: comm.Rank() != 0,
		ranks: comm.Size(), fabric: comm.Fabric(), path: comm.Datapath(),
	}
	if err := out.header(); err != nil {
		return 0, err
	}
	for _, n := range job.sizes {
		for _, algo := range job.algos {
			r, err := b.Measure(ctx, &job.Job, algo, n)
			if err != nil {
				return wrong, bench.CaseError(fmt.Sprintf("%s of %d bytes by %s", job.Op, n, algo), err)
			}
			wrong += r.Wrong
			if err := out.result(r); err != nil {
				return wrong, err
			}
		}
	}
	return wrong, nil
}

// verdict ends a job that has not failed.
func verdict(e *cli.Env, rank int, wrong int64) error {
	if wrong == 0 {
		return nil
	}
	if rank == 0 {
		e.Message("%d bytes were wrong", wrong)
	}
	return cli.StatusError(cli.StatusWrong)
}
