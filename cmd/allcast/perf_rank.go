package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"

	"github.com/allcast/allcast"
)

// perfRank takes part as one rank, and prints the results if that is rank 0.
func (a *app) perfRank(rank int, job *perfJob) error {
	var raw *wholeFile
	if rank == 0 {
		// First, so that it does not fail after everybody has come.
		var err error
		if raw, err = createRaw(job.raw); err != nil {
			return err
		}
		defer raw.discard()
	}
	if job.overlap && runtime.GOMAXPROCS(0) == 1 {
		runtime.GOMAXPROCS(2) // while we compute, somebody must serve the network
	}
	ctx := context.Background()
	comm, err := allcast.Join(ctx, allcast.Options{
		Subgroups: job.subgroups, Chunk: job.chunk, NoCalibration: !job.chooses(), Secure: job.secure, Integrity: job.integrity,
		Fabric: job.fabric, Device: job.device, Datapath: job.datapath, Hook: job.hook,
	})
	if err != nil {
		return joinFailure(err)
	}
	wrong, err := a.perfOn(ctx, comm, job, raw)
	if err != nil {
		return leave(comm, err)
	}
	if err := comm.Close(); err != nil {
		return err
	}
	if err := raw.commit(); err != nil {
		return err
	}
	return a.perfVerdict(comm.Rank(), wrong)
}

// chooses reports whether Allcast is to choose an algorithm.
func (j *perfJob) chooses() bool {
	return slices.ContainsFunc(j.algos, func(a string) bool { return strings.Contains(a, "auto") })
}

// perfOn runs all cases of a job, and returns how many bytes were wrong. Rank 0 writes the
// times of all ranks to raw.
func (a *app) perfOn(ctx context.Context, comm *allcast.Comm, job *perfJob, raw *wholeFile) (wrong int64, err error) {
	b, err := newPerfBench(ctx, comm)
	if err != nil {
		return 0, err
	}
	b.raw = raw
	out := &perfOutput{app: a, job: job, quiet: comm.Rank() != 0, ranks: comm.Size(), fabric: comm.Fabric(), path: comm.Datapath()}
	if err := out.header(); err != nil {
		return 0, err
	}
	for _, n := range job.sizes {
		for _, algo := range job.algos {
			r, err := b.measure(ctx, job, algo, n)
			if err != nil {
				return wrong, &caseError{fmt.Sprintf("%s of %d bytes by %s", job.op, n, algo), err}
			}
			wrong += r.Wrong
			if err := out.result(r); err != nil {
				return wrong, err
			}
		}
	}
	return wrong, nil
}

func (b *perfBench) measure(ctx context.Context, job *perfJob, algo string, n int64) (*perfResult, error) {
	c, err := b.newCase(ctx, job, algo, n)
	if err != nil {
		return nil, err
	}
	t, err := b.run(ctx, c)
	if err != nil {
		return nil, err // of a pair, the other half may still be under way
	}
	c.free()
	r, err := b.gather(ctx, c, t)
	if err != nil {
		return nil, err
	}
	if job.raw != "" {
		err = b.record(ctx, r, t)
	}
	return r, err
}

// perfVerdict is how the command ends when nothing has failed.
func (a *app) perfVerdict(rank int, wrong int64) error {
	if wrong == 0 {
		return nil
	}
	if rank == 0 {
		a.message("%d bytes were wrong", wrong)
	}
	return statusError(statusWrong)
}

// caseError says in which case the library failed; its messages have a prefix of
// their own that would be there twice.
type caseError struct {
	what string
	err  error
}

func (e *caseError) Error() string {
	return e.what + ": " + strings.TrimPrefix(e.err.Error(), "allcast: ")
}

func (e *caseError) Unwrap() error { return e.err }

// joinFailure is how a rank ends that did not get in.
func joinFailure(err error) error {
	msg := strings.TrimPrefix(err.Error(), "allcast: ")
	if errors.Is(err, allcast.ErrOptions) {
		return &usageError{msg: msg}
	}
	return errors.New(msg)
}

// leave ends a rank's part after a failure: what it knows of it reaches the others
// before its connections close, so that they do not take it for the one that failed.
func leave(comm *allcast.Comm, err error) error {
	var rank *allcast.RankError
	noMulticast := errors.Is(err, allcast.ErrNoMulticast)
	if !noMulticast && !errors.As(err, &rank) {
		_ = comm.Abort() // ours alone: the others would wait for us
	}
	_ = comm.Close()
	if noMulticast && comm.Rank() != 0 {
		return statusError(statusFailed) // rank 0 says it for all
	}
	return err
}
