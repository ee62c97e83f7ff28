package main

import (
	"context"
	"fmt"
	"os"
	"slices"

	"github.com/allcast/allcast"
)

const perfRawHeader = "rank,op,algo,bytes,iteration,start_ns,duration_ns\n"

// checkRaw finds out before any rank is started that the log cannot be written.
func checkRaw(path string) error {
	if info, err := os.Stat(path); err == nil && !info.IsDir() && !info.Mode().IsRegular() {
		return nil // opening a pipe to try it would be the end of it for who reads
	}
	f, err := createRaw(path)
	f.discard()
	return err
}

// createRaw opens the log; an empty path is none.
func createRaw(path string) (*wholeFile, error) {
	f, err := createWhole(path, "the raw times")
	if err != nil {
		return nil, usagef("--raw: %v; want a file that can be written", err)
	}
	if f != nil {
		_, _ = f.Write([]byte(perfRawHeader)) // the file remembers its errors
	}
	return f, nil
}

// record collects everybody's iterations of a case, and writes them where there is a file.
func (b *perfBench) record(ctx context.Context, r *perfResult, t *tally) error {
	mine := slices.Concat(t.starts, t.times)
	all := make([]int64, len(mine)*b.comm.Size())
	if err := allcast.AllgatherSlice(ctx, b.comm, mine, all); err != nil {
		return err
	}
	if b.raw == nil {
		return nil
	}
	n := len(t.times)
	for rank := range b.comm.Size() {
		starts, times := all[2*n*rank:][:n], all[2*n*rank+n:][:n]
		for i := range n {
			// The file remembers its first error.
			_, _ = fmt.Fprintf(b.raw, "%d,%s,%s,%d,%d,%d,%d\n", rank, r.Op, r.Algo, r.Bytes, i, starts[i], times[i])
		}
	}
	return b.raw.failed()
}
