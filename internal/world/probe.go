package world

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/allcast/allcast/internal/fabric"
)

// probeTime bounds how long the ranks try whether multicast arrives: switches that
// snoop on group membership need a moment to learn of a new group, and many ranks on
// few processors take their time. Who is not heard sends again, less and less often.
const (
	probeTime  = 2 * time.Second
	probeRank  = 20 * time.Millisecond // more for every rank
	probeEvery = 20 * time.Millisecond // at first
	probeComm  = 1<<32 - 1
)

// probe sees whether everybody hears everybody, on every subgroup. Probes of all ranks
// cross all links, so they are small; that the agreed size gets through, two ranks try
// for all.
func (j *joining) probe(ctx context.Context) (why string, err error) {
	token := j.number("probe")
	subs := j.mc.Subgroups()
	p := &prober{token: token, heard: make([]atomic.Bool, j.Size*subs), size: j.Size, full: j.mc.Caps().Chunk}
	p.left.Store(int64((j.Size - 1) * subs))
	p.all = make(chan struct{})
	stop := make(chan struct{})
	ended := make(chan struct{}, subs+1)
	for sub := range subs {
		go func() {
			defer func() { ended <- struct{}{} }()
			rx := j.mc.Receiver(sub)
			s := &probeSink{p: p, sub: sub, self: j.Rank}
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
		wait := probeEvery + time.Duration(j.Size)*probeRank/10
		every := time.NewTimer(wait)
		defer every.Stop()
		payload := make([]byte, p.payload(j.Rank))
		b := fabric.Batch{Headers: []fabric.Header{{Token: token, Comm: probeComm, Imm: uint32(j.Rank)}}, Payloads: [][]byte{payload}}
		for {
			for sub := range subs {
				_ = fabric.SendAll(j.mc.Sender(sub), &b, probeEvery) // whoever does not hear it will say so
			}
			select {
			case <-stop:
				return
			case <-every.C:
				wait *= 2
				every.Reset(wait)
			}
		}
	}()
	limit := probeTime + time.Duration(j.Size)*probeRank
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-p.all:
	case <-timer.C:
	case <-ctx.Done():
	}
	// The others may not have heard us yet: go on sending until they have said.
	var mine probeCard
	for r := range j.Size {
		for sub := range subs {
			if r != j.Rank && !p.heard[r*subs+sub].Load() {
				mine.Deaf = append(mine.Deaf, r)
				break
			}
		}
	}
	cards, err := exchange(ctx, j.session, mine)
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
			return fmt.Sprintf("rank %d did not hear rank %d within %v (interface %s, datagrams of %d bytes)", r, c.Deaf[0], limit, j.where, j.mc.Caps().Chunk), nil
		}
	}
	return "", nil
}

type probeCard struct {
	Deaf []int `json:"d,omitempty"` // whom we did not hear
}

type prober struct {
	token uint64
	size  int
	full  int           // bytes of a chunk
	heard []atomic.Bool // by rank and subgroup
	left  atomic.Int64
	all   chan struct{}
}

// payload is that of a rank's probes: full for the first and the last, which are the
// likeliest to be far apart.
func (p *prober) payload(rank int) int {
	if rank == 0 || rank == p.size-1 {
		return p.full
	}
	return 0
}

// probeSink takes the probes of one subgroup.
type probeSink struct {
	p    *prober
	sub  int
	self int
}

func (s *probeSink) Expect([][]byte) int         { return 0 }
func (s *probeSink) Arrived([]fabric.Header) int { return 0 }
func (s *probeSink) Idle()                       {}

func (s *probeSink) Chunk(h fabric.Header, payload []byte) {
	if h.Token != s.p.token || h.Comm != probeComm || uint64(h.Imm) >= uint64(s.p.size) || int(h.Imm) == s.self {
		return
	}
	r := int(h.Imm)
	if len(payload) != s.p.payload(r) {
		return // of a chunk of several packets, the first: the others have no header
	}
	subs := len(s.p.heard) / s.p.size
	if !s.p.heard[r*subs+s.sub].Swap(true) && s.p.left.Add(-1) == 0 {
		close(s.p.all)
	}
}
