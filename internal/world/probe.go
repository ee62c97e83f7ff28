package world

import (
	"context"
	"fmt"
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
	stop := make(chan struct{})
	ended := make(chan struct{}, subs+1)
	for sub := range subs {
		go func() {
			defer func() { ended <- struct{}{} }()
			rx := j.mc.Receiver(sub)
			s := &probeSink{p, sub}
			for {
				select {
				case <-stop:
					return
				default:
				}
				if rx.Receive(s) != nil {
					return
				}
			}
		}()
	}
	go func() {
		defer func() { ended <- struct{}{} }()
		p.Send(stop, func(sub int, b *fabric.Batch) {
			_ = fabric.SendAll(j.mc.Sender(sub), b, probePatience) // the ranks that miss the probe report it
		})
	}()
	limit := probe.Limit(j.Size)
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-p.All():
	case <-timer.C:
	case <-ctx.Done():
	}
	// Other ranks may still miss our probes, so this rank sends until all have reported.
	cards, err := exchange(ctx, j.session, probeCard{p.Unheard()})
	close(stop)
	for sub := range subs {
		j.mc.Receiver(sub).Wake()
	}
	for range subs + 1 {
		<-ended
	}
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

// probeSink receives the probes of one subgroup.
type probeSink struct {
	p   *probe.Probe
	sub int
}

func (s *probeSink) Expect([][]byte) int       { return 0 }
func (s *probeSink) Arrived([]wire.Header) int { return 0 }
func (s *probeSink) Idle()                     {}

func (s *probeSink) Chunk(h wire.Header, payload []byte) { s.p.Take(s.sub, h, payload) }
