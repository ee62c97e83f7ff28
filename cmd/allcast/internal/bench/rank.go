package bench

import (
	"context"
	"errors"
	"strings"

	"github.com/allcast/allcast"
	"github.com/allcast/allcast/cmd/allcast/internal/cli"
)

// CaseError says in which case the library failed. It drops the prefix of the library's message, which the command
// prints too.
type CaseError struct {
	Case string
	Err  error
}

func (e *CaseError) Error() string {
	return e.Case + ": " + strings.TrimPrefix(e.Err.Error(), "allcast: ")
}

func (e *CaseError) Unwrap() error { return e.Err }

// Run joins the job as one rank, measures, and leaves.
func Run(ctx context.Context, o allcast.Options, measure func(*Bench) error) error {
	comm, err := join(ctx, o)
	if err != nil {
		return err
	}
	b, err := New(ctx, comm)
	if err == nil {
		err = measure(b)
	}
	if err != nil {
		return leave(comm, err)
	}
	return comm.Close()
}

// join joins the job as one rank. Bad options are usage errors.
func join(ctx context.Context, o allcast.Options) (*allcast.Comm, error) {
	comm, err := allcast.Join(ctx, o)
	if err == nil {
		return comm, nil
	}
	msg := strings.TrimPrefix(err.Error(), "allcast: ")
	if errors.Is(err, allcast.ErrOptions) {
		return nil, &cli.UsageError{Msg: msg}
	}
	return nil, errors.New(msg)
}

// leave leaves the job after a failure and returns the error to report. The other ranks learn the reason before the
// connections close, so that they do not blame this rank.
func leave(comm *allcast.Comm, err error) error {
	noMulticast := errors.Is(err, allcast.ErrNoMulticast)
	if _, ofRank := errors.AsType[*allcast.RankError](err); !noMulticast && !ofRank {
		_ = comm.Abort() // a local failure: without Abort, the other ranks would wait for this one
	}
	_ = comm.Close()
	if noMulticast && comm.Rank() != 0 {
		return cli.StatusError(cli.StatusFailed) // rank 0 reports it for all
	}
	return err
}
