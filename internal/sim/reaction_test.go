package sim

import (
	"errors"
	"testing"
	"time"

	"github.com/allcast/allcast/internal/p2p"
	"github.com/allcast/allcast/internal/topology"
)

// Each rank of a chain reacts before it forwards.
func TestReaction(t *testing.T) {
	g, err := topology.Parse("star:5")
	if err != nil {
		t.Fatal(err)
	}
	took := func(reaction time.Duration) float64 {
		r, err := Run(Config{
			Op: "broadcast", Algo: "chain", Topology: g, Bytes: 4096, Schedule: Schedule{Chunk: 4096},
			Network: Network{Rate: 100e9, Latency: time.Microsecond}, Receiver: Receiver{Reaction: reaction},
		})
		if err != nil || !r.Verified {
			t.Fatalf("%+v, %v", r, err)
		}
		return r.TimeUS
	}
	if late := took(10*time.Microsecond) - took(0); late < 40 || late > 60 {
		t.Errorf("four hops with a reaction of 10 us each take %.1f us longer", late)
	}
}

// A schedule of the caller replaces the algorithm's, and its errors end the run.
func TestScheduleOfTheCaller(t *testing.T) {
	g, err := topology.Parse("star:3")
	if err != nil {
		t.Fatal(err)
	}
	broken := errors.New("broken")
	cfg := Config{Op: "broadcast", Algo: "chain", Topology: g, Bytes: 100, Network: Network{Rate: 100e9}}
	cfg.Chunk = 4096
	cfg.Plan = func(s p2p.Spec) (*p2p.Plan, error) {
		var sends []p2p.Send
		var recvs []p2p.Recv
		if s.Rank == s.Root {
			sends = []p2p.Send{{Len: s.Bytes, To: 1}, {Len: s.Bytes, To: 2}}
		} else {
			recvs = []p2p.Recv{{Len: s.Bytes, From: 0}}
		}
		return p2p.Schedule("star", s, sends, recvs)
	}
	if r, err := Run(cfg); err != nil || !r.Verified || r.PayloadLinkBytes != 400 {
		t.Errorf("%+v, %v", r, err)
	}
	cfg.Plan = func(p2p.Spec) (*p2p.Plan, error) { return nil, broken }
	if _, err := Run(cfg); !errors.Is(err, broken) {
		t.Errorf("error %v", err)
	}
	bad := p2p.Spec{Kind: p2p.Broadcast, Size: 2, Rank: 5}
	if _, err := p2p.Schedule("star", bad, nil, nil); !errors.Is(err, p2p.ErrSpec) {
		t.Errorf("error %v", err)
	}
}
