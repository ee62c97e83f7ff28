package main

import (
	"errors"

	"github.com/allcast/allcast/internal/sim"
)

type simCmd struct {
	Broadcast simBroadcastCmd `cmd:"" help:"One rank sends to all."`
	Allgather simAllgatherCmd `cmd:"" help:"Every rank sends to all."`

	ReduceScatter simReduceScatterCmd `cmd:"" help:"Every rank gets its block of the sum."`
	Allreduce     simAllreduceCmd     `cmd:"" help:"Every rank gets the whole sum."`
	Barrier       simBarrierCmd       `cmd:"" help:"Every rank waits for all."`
	Both          simBothCmd          `cmd:"" name:"allgather+reduce-scatter" help:"Both at the same time, as in a training step."`
	FSDP          simFSDPCmd          `cmd:"" name:"fsdp" help:"A training step of a fully sharded model."`
}

func (simCmd) Help() string {
	return `The protocol is the real one; the network, the clock and the hosts' memory are simulated. Everything random comes from one seed: the same flags give the same output, wall_ms aside.

recovery_us and cutoff_us tell what losses cost. recovery_us is the time from the moment the last datagram
reached a host, or was lost there, to the end of the operation; without losses it is about the final
handshake. For a datagram that a full queue drops (--queue) that moment is estimated: when it would have
reached the end of the link that it waited for. cutoff_us is the longest first cutoff of a rank: N/B + alpha
after its barrier, the time after which missing chunks are fetched. Both are 0 without multicast.

Example:
  allcast sim broadcast --topology fat-tree3:4096,32 --bytes 8M --rate 200gbit`
}

// topologyForms is what --topology takes. topology.Parse lists them too, but it
// is not asked when the flag is missing.
const topologyForms = "star:HOSTS, fat-tree:HOSTS,LEAVES,SPINES, fat-tree3:HOSTS,RADIX"

// runSim runs one configuration once for each algorithm, and prints the results.
func (a *app) runSim(cfg sim.Config, f *simFlags) error {
	capture, err := createPcap(f.Pcap)
	if err != nil {
		return usagef("--pcap: %v", err)
	}
	defer capture.discard()
	page, err := createPage(f.HTML)
	if err != nil {
		return usagef("--html: %v", err)
	}
	defer page.discard()
	if capture != nil {
		cfg.Pcap = capture
	}
	var results []*sim.Result
	for _, algo := range f.algos {
		cfg.Algo = algo
		r, err := a.simulateOne(cfg)
		if cerr := capture.failed(); cerr != nil {
			return cerr // the simulator's own error, if any, only repeats it
		}
		if err != nil {
			return err
		}
		results = append(results, r)
		if a.json {
			if err := a.printJSON(r); err != nil {
				return err
			}
		}
	}
	if page != nil {
		if err := a.drawLinks(page, cfg, results); err != nil {
			return err
		}
	}
	if err := errors.Join(capture.commit(), page.commit()); err != nil {
		return err
	}
	if !a.json {
		if err := simTable(results).print(a.stdout); err != nil {
			return err
		}
	}
	return a.verdict(results)
}

// simulateOne runs one simulation. Some configurations only the simulator can
// tell to be senseless; they are the user's to mend all the same.
func (a *app) simulateOne(cfg sim.Config) (*sim.Result, error) {
	r, err := a.simulate(cfg)
	if errors.Is(err, sim.ErrConfig) {
		return nil, usagef("%v", err)
	}
	if err != nil {
		return nil, err
	}
	if r.Errors == nil {
		r.Errors = []sim.RankError{} // [] in JSON: a reader can always iterate
	}
	return r, nil
}
