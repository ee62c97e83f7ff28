package paper

import (
	"context"
	"fmt"
	"time"

	"github.com/allcast/allcast/internal/sim"
	"github.com/allcast/allcast/internal/topology"
)

// The links of the testbed, and the paper's chunk.
const (
	testbedRate    = 56e9 // bit/s
	testbedLatency = 500 * time.Nanosecond
	testbedChunk   = 4096
)

// simulate runs one collective on the testbed's links. The result is verified.
func simulate(ctx context.Context, cfg sim.Config) (*sim.Result, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	cfg.Chunk, cfg.Subgroups, cfg.Rate, cfg.Latency = testbedChunk, 1, testbedRate, testbedLatency
	r, err := sim.Run(cfg)
	if err != nil {
		return nil, err
	}
	if !r.Verified || r.Algo != cfg.Algo {
		return nil, fmt.Errorf("%s by %s: not verified", cfg.Op, cfg.Algo)
	}
	return r, nil
}

func run(ctx context.Context, g *topology.Graph, op, algo string, bytes, segment int64) (*sim.Result, error) {
	return simulate(ctx, sim.Config{
		Op: op, Algo: algo, Topology: g, Bytes: bytes, Schedule: sim.Schedule{Segment: segment}, Seed: 1,
	})
}

// fastest runs a collective with several segment sizes.
func fastest(
	ctx context.Context, g *topology.Graph, op, algo string, bytes int64, segments ...int64,
) (best *sim.Result, with int64, err error) {
	for _, s := range segments {
		r, err := run(ctx, g, op, algo, bytes, s)
		if err != nil {
			return nil, 0, err
		}
		if best == nil || r.TimeUS < best.TimeUS {
			best, with = r, s
		}
	}
	return best, with, nil
}

// mustParse returns a network whose spec is part of the program.
func mustParse(spec string) *topology.Graph {
	g, err := topology.Parse(spec)
	if err != nil {
		panic(err)
	}
	return g
}

// count reports the progress of a known number of steps.
type count struct {
	env         *Env
	done, total int
}

func (c *count) next(format string, args ...any) {
	c.env.progress(min(1, float64(c.done)/float64(c.total)), fmt.Sprintf(format, args...))
	c.done++
}

// kib writes a size.
func kib(bytes int64) string { return fmt.Sprintf("%d KiB", bytes>>10) }
