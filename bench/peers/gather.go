//go:build linux

package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/allcast/allcast"
)

// gatherJob is what the ranks of "peers gather" do, as JSON on the command line.
type gatherJob struct {
	Algo         string
	Bytes, Chunk int
	Warmup       int    // operations before the first moment
	Iters        int    // operations between both moments, and timed operations after them
	Dir          string // directory of the files by which rank 0 talks to its parent
}

// Moments at which rank 0 waits until the parent has read the counters.
const (
	joined = "joined" // connections exist, and nothing but operations follows
	done   = "done"   // the operations that count have ended
)

// gather is one rank that runs Allgathers between two moments, and times others. Unlike "allcast perf", it tells the
// parent when it has joined: the probes of joining must not count as traffic of the operation.
func gather(args []string) error {
	var job gatherJob
	if len(args) != 1 {
		return errors.New("want one argument")
	}
	if err := json.Unmarshal([]byte(args[0]), &job); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	c, err := allcast.Join(ctx, allcast.Options{NoCalibration: true, Chunk: job.Chunk})
	if err != nil {
		return err
	}
	if _, err := job.operations(ctx, c, job.Warmup, c.Size()); err != nil {
		return err
	}
	if err := job.meet(ctx, c, joined); err != nil {
		return err
	}
	// One chain: the kernel's counters of multicast are not atomic, so counts are lost if datagrams of several senders
	// reach a switch at the same time.
	if _, err := job.operations(ctx, c, job.Iters, 1); err != nil {
		return err
	}
	if err := job.meet(ctx, c, done); err != nil {
		return err
	}
	times, err := job.operations(ctx, c, job.Iters, c.Size())
	if err != nil {
		return err
	}
	if err := printTimes(ctx, c, times); err != nil {
		return err
	}
	return c.Close()
}

// operations runs some Allgathers after a barrier each, verifies them, and returns their times.
func (job *gatherJob) operations(
	ctx context.Context, c *allcast.Comm, n, chains int,
) (times []time.Duration, err error) {
	in, out, want := make([]byte, job.Bytes), make([]byte, job.Bytes*c.Size()), make([]byte, job.Bytes)
	for i := range n {
		fillBlock(in, c.Rank(), i)
		if err := c.Barrier(ctx); err != nil {
			return nil, err
		}
		start := time.Now()
		err := c.Allgather(ctx, in, out, allcast.WithAlgorithm(job.Algo), allcast.WithChains(chains))
		if err != nil {
			return nil, err
		}
		times = append(times, time.Since(start))
		for r := range c.Size() {
			fillBlock(want, r, i)
			if !bytes.Equal(out[r*job.Bytes:(r+1)*job.Bytes], want) {
				return nil, fmt.Errorf("rank %d has wrong data of rank %d", c.Rank(), r)
			}
		}
	}
	return times, nil
}

// fillBlock fills a block with data that differs by rank and iteration.
func fillBlock(block []byte, rank, iter int) {
	for i := range block {
		block[i] = byte(i*7 + i>>8 + rank*31 + iter*17)
	}
}

// meet waits until all ranks have come here and the parent has read the counters.
func (job *gatherJob) meet(ctx context.Context, c *allcast.Comm, moment string) error {
	if err := c.Barrier(ctx); err != nil {
		return err
	}
	if c.Rank() == 0 {
		if err := os.WriteFile(filepath.Join(job.Dir, moment), nil, 0o644); err != nil {
			return err
		}
		if err := awaitFile(ctx, filepath.Join(job.Dir, moment+"-read")); err != nil {
			return err
		}
	}
	return c.Barrier(ctx)
}

// awaitFile waits until a file exists.
func awaitFile(ctx context.Context, path string) error {
	for {
		_, err := os.Stat(path)
		if err == nil || !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s does not appear: %w", path, context.Cause(ctx))
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// printTimes prints the time of the slowest rank in each iteration, in us.
func printTimes(ctx context.Context, c *allcast.Comm, times []time.Duration) error {
	var mine []byte
	for _, t := range times {
		mine = binary.LittleEndian.AppendUint64(mine, uint64(t))
	}
	all := make([]byte, len(mine)*c.Size())
	if err := c.Allgather(ctx, mine, all, allcast.WithAlgorithm("ring")); err != nil || c.Rank() != 0 {
		return err
	}
	slowest := make([]float64, len(times))
	for i := range len(all) / 8 {
		us := float64(binary.LittleEndian.Uint64(all[8*i:])) / 1e3
		slowest[i%len(times)] = max(slowest[i%len(times)], us)
	}
	return json.NewEncoder(os.Stdout).Encode(slowest)
}
