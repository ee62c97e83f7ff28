//go:build linux

package main

import (
	"context"
	"fmt"
	"log"
	"time"
)

// The pattern of FSDP: the Allgather of one layer beside the Reduce-Scatter of another one.
const (
	fsdpNetwork = "fat-tree:16,4,1"
	fsdpOp      = "allgather+reduce-scatter"
	fsdpOurs    = "mcast+inc"
	fsdpRing    = "ring+ring"
)

// pairSample holds the times of both in one placement, in us.
type pairSample struct{ ours, rings float64 }

func (p pairSample) ratio() float64 { return p.rings / p.ours }

func ratios(list []pairSample) (values []float64) {
	for _, p := range list {
		values = append(values, p.ratio())
	}
	return values
}

// measurePairs compares multicast with aggregators in the switches with two rings, in random placements.
func (b *oversubscribed) measurePairs(ctx context.Context) error {
	network := b.network(fsdpNetwork)
	network.Inc = true
	return b.randomly(ctx, network, func(placement string) error {
		var p pairSample
		for _, run := range []struct {
			algo string
			time *float64
		}{{fsdpOurs, &p.ours}, {fsdpRing, &p.rings}} {
			s, err := measureAllcast(ctx, b.bed, fsdpOp, run.algo, int64(b.bytes), b.often)
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if err == nil && s.fallback != "" {
				err = fmt.Errorf("fell back to another algorithm: %s", s.fallback)
			}
			if err != nil {
				b.gap(fmt.Errorf("%s, %s, %s: %w", fsdpNetwork, placement, run.algo, err))
				return nil
			}
			*run.time = s.time
		}
		b.fsdp = append(b.fsdp, p)
		log.Printf("%v: %s, %s: %s takes %.0f ms, %s %.0f ms: %.1f times", time.Since(b.began).Round(time.Second/10),
			fsdpNetwork, placement, fsdpOurs, p.ours/1e3, fsdpRing, p.rings/1e3, p.ratio())
		return nil
	})
}
