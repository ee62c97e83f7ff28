package world

import (
	"context"
	"fmt"
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

// probe tests whether every rank hears every other rank on every subgroup.
func (j *joining) probe(ctx context.Context) (why string, err error) {
	subs := j.mc.Subgroups()
	p := probe.New(j.number("probe"), probeComm, j.Rank, j.Size, subs, j.mc.Capabilities().Chunk)
	var wg sync.WaitGroup
	running, stop := context.WithCancel(context.Background())
	for sub := range subs {
		wg.Go(func() {
			rx := j.mc.Receiver(sub)
			sink := fabric.ChunkFunc(func(h wire.Header, payload []byte) { p.Take(sub, h, payload) })
			for running.Err() == nil && rx.Receive(sink) == nil {
			}
		})
	}
	wg.Go(func() {
		p.Send(running.Done(), func(sub int, b *fabric.Batch) {
			_ = fabric.SendAll(j.mc.Sender(sub), b, probePatience) // the ranks that miss the probe report it
		})
	})
	limit := probe.Limit(j.Size)
	waiting, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	select {
	case <-p.All():
	case <-waiting.Done():
	}
	// Other ranks may still miss our probes, so this rank sends until all have reported.
	cards, err := exchange(ctx, j.session, probeCard{p.Unheard()})
	stop()
	for sub := range subs {
		j.mc.Receiver(sub).Wake()
	}
	wg.Wait()
	if err != nil {
		return "", err
	}
	for r, c := range cards {
		if len(c.Deaf) > 0 {
			return fmt.Sprintf("rank %d did not hear rank %d within %v (interface %s, datagrams of %d bytes)",
				r, c.Deaf[0], limit, j.where, j.mc.Capabilities().Chunk), nil
		}
	}
	return "", nil
}

type probeCard struct {
	Deaf []int `json:"d,omitempty"` // ranks that this rank did not hear
}
