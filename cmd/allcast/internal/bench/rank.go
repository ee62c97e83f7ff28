package bench

import (
	"context"
	"errors"
	"strings"

	"github.com/allcast/allcast"
	"github.com/allcast/allcast/cmd/allcast/internal/cli"
)

// caseError says in which case the library failed. It drops the prefix of the library's message, which the command
// prints too.
type caseError struct {
	what string
	err  error
}

// CaseError says in which case the library failed.
func CaseError(what string, err error) error { return &caseError{what, err} }

func (e *caseError) Error() string {
	return e.what + ": " + strings.TrimPrefix(e.err.Error(), "allcast: ")
}

func (e *caseError) Unwrap() error { return e.err }

// Join joins the job as one rank. Bad options are usage errors.
func Join(ctx context.Context, o allcast.Options) (*allcast.Comm, error) {
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

// Leave leaves the job after a failure and returns the error to report. The other ranks learn the reason before the
// connections close, so that they do not blame this rank.
func Leave(comm *allcast.Comm, err error) error {
	var rank *allcast.RankError
	noMulticast := errors.Is(err, allcast.ErrNoMulticast)
	if !noMulticast && !errors.As(err, &rank) {
		_ = comm.Abort() // a local failure: without Abort, the other ranks would wait for this one
	}
	_ = comm.Close()
	if noMulticast && comm.Rank() != 0 {
		return cli.StatusError(cli.StatusFailed) // rank 0 reports it for all
	}
	return err
}
