//go:build linux && cgo

package main

// #include "internal.h"
import "C"

import (
	"context"
	"errors"
	"fmt"
	"unsafe"

	"github.com/allcast/allcast"
)

// Errors of this layer.
var (
	errQueueInUse = errors.New("the queue is in use")
	errTimeout    = errors.New("the time to wait passed, and the operation continues")
	errStore      = errors.New("the store failed")
	errJoin       = errors.New("join")
)

// codes are the codes of errors. The first match counts: an error that a rank's timeout has caused matches both the
// error of its context and ErrAborted.
var codes = []struct {
	err  error
	code C.int
}{
	{errTimeout, C.ALLCAST_ERR_TIMEOUT},
	{errQueueInUse, C.ALLCAST_ERR_IN_USE},
	{errStore, C.ALLCAST_ERR_STORE},
	{allcast.ErrOptions, C.ALLCAST_ERR_OPTIONS},
	{allcast.ErrMissing, C.ALLCAST_ERR_MISSING},
	{allcast.ErrWithdrawn, C.ALLCAST_ERR_WITHDRAWN},
	{context.DeadlineExceeded, C.ALLCAST_ERR_DEADLINE},
	{allcast.ErrDeadline, C.ALLCAST_ERR_DEADLINE},
	{allcast.ErrRankLost, C.ALLCAST_ERR_RANK_LOST},
	{allcast.ErrAborted, C.ALLCAST_ERR_ABORTED},
	{allcast.ErrMismatch, C.ALLCAST_ERR_MISMATCH},
	{allcast.ErrProtocol, C.ALLCAST_ERR_PROTOCOL},
	{allcast.ErrCorrupt, C.ALLCAST_ERR_CORRUPT},
	{allcast.ErrClosed, C.ALLCAST_ERR_CLOSED},
	{allcast.ErrInvalid, C.ALLCAST_ERR_INVALID},
	{allcast.ErrNotAlloced, C.ALLCAST_ERR_INVALID},
	{allcast.ErrNoMulticast, C.ALLCAST_ERR_NO_MULTICAST},
	{allcast.ErrNoAggregation, C.ALLCAST_ERR_NO_AGGREGATION},
	{allcast.ErrInUse, C.ALLCAST_ERR_IN_USE},
	{allcast.ErrTruncated, C.ALLCAST_ERR_TRUNCATED},
	{errJoin, C.ALLCAST_ERR_JOIN},
}

func codeOf(err error) C.int {
	if err == nil {
		return C.ALLCAST_OK
	}
	for _, c := range codes {
		if errors.Is(err, c.err) {
			return c.code
		}
	}
	return C.ALLCAST_ERR_OTHER
}

// report returns the code of err, and describes err in f.
func report(f *C.struct_failure, err error) C.int {
	if err == nil {
		return C.ALLCAST_OK
	}
	f.code, f.rank, f.world_rank = codeOf(err), -1, -1
	var rank *allcast.RankError
	var shrink *allcast.ShrinkError
	var withdrawn *allcast.WithdrawnError
	switch {
	case errors.As(err, &rank):
		f.rank, f.world_rank = C.int32_t(rank.Rank), C.int32_t(rank.WorldRank)
		copyText(f.phase[:], rank.Phase)
	case errors.As(err, &withdrawn):
		f.rank, f.world_rank = C.int32_t(withdrawn.Rank), C.int32_t(withdrawn.WorldRank)
	case errors.As(err, &shrink) && len(shrink.Ranks) > 0:
		f.rank, f.world_rank = C.int32_t(shrink.Ranks[0]), C.int32_t(shrink.WorldRanks[0])
	}
	copyText(f.message[:], err.Error())
	return f.code
}

// copyText copies text into an array of C, which ends with a zero. A text that is too long ends with dots.
func copyText(to []C.char, text string) {
	b := unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(to))), len(to))
	n := copy(b[:len(b)-1], text)
	b[n] = 0
	if n < len(text) {
		copy(b[n-3:], "...")
	}
}

func invalid(format string, args ...any) error {
	return fmt.Errorf("allcast: %w: %s", allcast.ErrInvalid, fmt.Sprintf(format, args...))
}

// checkOut returns an error if a result has no place.
func checkOut[T any](name string, p *T) error {
	if p == nil {
		return invalid("%s is NULL: the result needs a place", name)
	}
	return nil
}
