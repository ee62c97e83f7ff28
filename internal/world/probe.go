package world

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/allcast/allcast/internal/fabric"
	"github.com/allcast/allcast/internal/fabric/probe"
	"github.com/allcast/allcast/internal/wire"
)

const (
	probeComm     = 1<<32 - 1
	probePatience = 20 * time.Millisecond // limit for sending a probe into a full queue
)

// probe tests whether every rank hears every other rank on every subgroup, and whether the further streams of a
// subgroup arrive. All ranks have joined the groups, so one datagram per rank is enough unless some are lost. The
// ranks then report which ones they miss, and only these send again: with many ranks on few processors, datagrams
// that nobody needs would delay those that are needed.
func (j *joining) probe(ctx context.Context) (why string, streams bool, err error) {
	n := j.mc.Streams()
	p := probe.New(j.number("probe"), probeComm, j.Rank, j.Size, j.mc.Subgroups(), n, j.mc.Capabilities().Chunk)
	var wg sync.WaitGroup
	running, stop := context.WithCancel(context.Background())
	for stream := range n {
		wg.Go(func() {
			rx := j.mc.Receiver(stream)
			sink := fabric.ChunkFunc(func(h wire.Header, payload []byte) { p.Take(stream, h, payload) })
			for running.Err() == nil && rx.Receive(sink) == nil {
			}
		})
	}
	defer func() {
		stop()
		for stream := range n {
			j.mc.Receiver(stream).Wake()
		}
		wg.Wait()
	}()
	start, limit, wait := time.Now(), probe.Limit(j.Size), probe.Patience(j.Size)
	missed := unheard{From: j.Rank, Ranks: []int{j.Rank}} // in the first round, all ranks send
	for {
		if missed.Many || missed.Streams || slices.Contains(missed.Ranks, j.Rank) {
			p.SendOnce(func(stream int, b *fabric.Batch) {
				_ = fabric.SendAll(j.mc.Sender(stream), b, probePatience) // the ranks that miss the probe report it
			})
		}
		j.hear(ctx, p, wait)
		wait *= 2
		mine := missing(j.Rank, p.Unheard())
		mine.Streams = len(p.UnheardStreams()) > 0
		missed, err = fold(ctx, j.session, mine, func(all []unheard) (unheard, error) {
			result := union(all)
			result.Over = time.Since(start) > limit
			return result, nil
		})
		switch {
		case err != nil:
			return "", false, err
		case len(missed.Ranks) == 0 && (missed.Over || !missed.Streams):
			return "", !missed.Streams, nil
		case missed.Over:
			return fmt.Sprintf("rank %d did not hear rank %d within %v (interface %s, datagrams of %d bytes)",
				missed.From, missed.Ranks[0], limit, j.where, j.mc.Capabilities().Chunk), false, nil
		}
	}
}

// hear waits until this rank has heard all others, but not longer than wait.
func (j *joining) hear(ctx context.Context, p *probe.Probe, wait time.Duration) {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-p.All():
	case <-timer.C:
	case <-ctx.Done():
	}
}

// maxUnheard limits the ranks in a report, which all ranks get.
const maxUnheard = 64

// unheard are ranks that one rank did not hear, or that some did not hear.
type unheard struct {
	From    int   `json:"f"`           // the rank, or the first of them
	Ranks   []int `json:"r,omitempty"` // the first is one that From did not hear
	Many    bool  `json:"m,omitempty"` // there are more than maxUnheard
	Streams bool  `json:"s,omitempty"` // further streams of a subgroup were not heard
	Over    bool  `json:"o,omitempty"` // the time for the test is over
}

func missing(rank int, ranks []int) unheard {
	return unheard{From: rank, Ranks: ranks[:min(len(ranks), maxUnheard)], Many: len(ranks) > maxUnheard}
}

// union puts the reports of all ranks together.
func union(all []unheard) (u unheard) {
	seen := map[int]bool{}
	for _, one := range all {
		if len(u.Ranks) == 0 {
			u.From = one.From
		}
		u.Many, u.Streams = u.Many || one.Many, u.Streams || one.Streams
		for _, r := range one.Ranks {
			switch {
			case seen[r]:
			case len(seen) == maxUnheard:
				u.Many = true
			default:
				seen[r] = true
				u.Ranks = append(u.Ranks, r)
			}
		}
	}
	return u
}
