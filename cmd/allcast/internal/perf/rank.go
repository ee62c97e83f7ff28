package perf

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
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
	ctx, stop := cli.UntilSignal()
	defer stop()
	var wrong int64
	err := bench.Run(ctx, allcast.Options{
		Subgroups: job.Subgroups, Chunk: job.Chunk, NoCalibration: !job.calibrates(),
		Secure: job.Secure, Integrity: job.Integrity,
		Fabric: job.Fabric, Device: job.Device, Datapath: job.Datapath, Hook: job.Hook,
	}, func(b *bench.Bench) (err error) {
		if raw != nil {
			b.Raw = raw
		}
		wrong, err = measure(ctx, e, b, job)
		return err
	})
	if status := signalled(ctx, err); status != nil {
		if rank == 0 {
			e.Message("interrupted")
		}
		return cmp.Or(raw.Commit(), status)
	}
	if err == nil {
		err = raw.Commit()
	}
	if err != nil {
		return err
	}
	return verdict(e, rank, wrong)
}

// calibrates reports whether the library chooses an algorithm, or the number of chains of an Allgather.
func (j *job) calibrates() bool {
	return slices.ContainsFunc(j.algos, func(a string) bool {
		return strings.Contains(a, "auto") || a == "mcast" && j.Op == "allgather" && j.Chains == 0 && !j.ByRack
	})
}

// measure runs all sizes and algorithms of a job and returns the number of wrong bytes.
func measure(ctx context.Context, e *cli.Env, b *bench.Bench, job *job) (wrong int64, err error) {
	out := &output{Env: e, job: job, comm: b.Comm, bus: map[string][]float64{}}
	if err := out.header(); err != nil {
		return 0, err
	}
	for _, n := range job.sizes {
		for _, algo := range job.algos {
			r, err := measureOne(ctx, b, job, algo, n)
			if err != nil {
				if ctx.Err() != nil || errors.Is(err, allcast.ErrAborted) { // interrupted, here or on another rank
					_ = out.averages() // the error to report is the first one
				}
				return wrong, &bench.CaseError{Case: fmt.Sprintf("%s of %d bytes by %s", job.Op, n, algo), Err: err}
			}
			wrong += r.Wrong
			if r.InPlace != nil {
				wrong += r.InPlace.Wrong
			}
			if err := out.result(r); err != nil {
				return wrong, err
			}
		}
	}
	return wrong, out.averages()
}

// measureOne measures one algorithm at one size and, with --both, also in place.
func measureOne(ctx context.Context, b *bench.Bench, job *job, algo string, n int64) (*bench.Result, error) {
	r, err := b.Measure(ctx, &job.Job, algo, n)
	if err != nil || !job.both {
		return r, err
	}
	inPlace := job.Job
	inPlace.InPlace = true
	second, err := b.Measure(ctx, &inPlace, algo, n)
	if err != nil {
		return nil, err
	}
	r.InPlace = &second.Outcome
	return r, nil
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

// checkRaw reports that the log cannot be written before any rank starts.
func checkRaw(path string) error {
	if info, err := os.Stat(path); err == nil && !info.IsDir() && !info.Mode().IsRegular() {
		return nil // opening and closing a pipe would end its reader
	}
	f, err := createRaw(path)
	f.Discard()
	return err
}

// createRaw opens the log of raw times; an empty path gives a nil file.
func createRaw(path string) (*cli.File, error) {
	f, err := cli.CreateFile(path, "the raw times")
	if err != nil {
		return nil, cli.Usagef("--raw: %v; want a file that can be written", err)
	}
	if f != nil {
		_, _ = f.Write([]byte(bench.RawHeader)) // later writes return the error again
	}
	return f, nil
}
