// Package sim is "allcast sim": it runs a collective on a simulated network.
package sim

import (
	"errors"
	"io"

	"github.com/alecthomas/kong"

	"github.com/allcast/allcast/cmd/allcast/internal/cli"
	"github.com/allcast/allcast/internal/sim"
)

// Command is "allcast sim".
type Command struct {
	Broadcast     rootedCmd    `cmd:"" help:"One rank sends to all."`
	Allgather     allgatherCmd `cmd:"" help:"Every rank sends to all."`
	ReduceScatter sizedCmd     `cmd:"" help:"Every rank gets its block of the sum."`
	Allreduce     sizedCmd     `cmd:"" help:"Every rank gets the whole sum."`
	Barrier       barrierCmd   `cmd:"" help:"Every rank waits for all."`
	Both          sizedCmd     `cmd:"" name:"allgather+reduce-scatter" help:"Both at once, as in a training step."`

	Gather    plainRootedCmd `cmd:"" help:"One rank gets a block from every rank."`
	Gatherv   plainRootedCmd `cmd:"" help:"As gather, with blocks of different sizes."`
	Scatter   plainRootedCmd `cmd:"" help:"One rank sends a block to every rank."`
	Scatterv  plainRootedCmd `cmd:"" help:"As scatter, with blocks of different sizes."`
	Reduce    plainRootedCmd `cmd:"" help:"One rank gets the whole sum."`
	Alltoall  plainCmd       `cmd:"" help:"Every rank sends a block to every rank."`
	Alltoallv plainCmd       `cmd:"" help:"As alltoall, with blocks of different sizes."`
	Sendrecv  messageCmd     `cmd:"" help:"Every even rank sends a message to the next rank, which sends one back."`

	FSDP fsdpCmd `cmd:"" name:"fsdp" help:"A training step of a fully sharded model."`

	simulate   func(sim.Config) (*sim.Result, error) // replaces sim.Run in tests
	isTerminal func(io.Writer) bool                  // replaces cli.IsTerminal in tests
}

// Help implements kong.HelpProvider.
func (Command) Help() string {
	return `The protocol is the real one; the network, the clock and the memory of the hosts are simulated.
All randomness comes from one seed: the same flags give the same output, except wall_ms.

recovery_us and cutoff_us show the cost of losses. recovery_us is the time from the moment the last datagram
reached a host, or was lost there, to the end of the operation. Without losses it is about the time of the
final handshake. For a datagram that a full queue drops (--queue), that moment is an estimate: when it would
have reached the end of the link it waited for. cutoff_us is the longest first cutoff of a rank: N/B + alpha
after its barrier, the time after which missing chunks are fetched. Both are 0 without multicast.

Example:
  allcast sim broadcast --topology fat-tree3:4096,32 --bytes 8M --rate 200gbit`
}

// run simulates the selected operation once per algorithm and prints the results. cfg has what its own flags say.
func (c *Command) run(e *cli.Env, k *kong.Context, f *flags, m *multicastFlags, cfg sim.Config) error {
	cfg, err := f.config(k.Selected().Name, m, cfg)
	if err != nil {
		return err
	}
	if err := checkEffects(cfg.Op, f.algos, cli.GivenFlags(k)); err != nil {
		return err
	}
	capture, err := cli.CreateFile(f.Pcap, "the capture")
	if err != nil {
		return cli.Usagef("--pcap: %v", err)
	}
	defer capture.Discard()
	page, err := cli.CreateFile(f.HTML, "the page")
	if err != nil {
		return cli.Usagef("--html: %v", err)
	}
	defer page.Discard()
	if capture != nil {
		cfg.Pcap = capture
	}
	var results []*sim.Result
	for _, algo := range f.algos {
		cfg.Algo = algo
		bar := c.showProgress(e, &cfg)
		r, err := c.runOne(cfg)
		bar.Clear()
		if cerr := capture.Failed(); cerr != nil {
			return cerr // an error of the simulator only repeats it
		}
		if err != nil {
			return err
		}
		results = append(results, r)
		if e.JSON {
			if err := e.PrintJSON(r); err != nil {
				return err
			}
		}
	}
	if page != nil {
		if err := drawLinks(e, page, cfg, results); err != nil {
			return err
		}
	}
	if err := errors.Join(capture.Commit(), page.Commit()); err != nil {
		return err
	}
	if !e.JSON {
		if err := e.PrintTable(resultTable(results)); err != nil {
			return err
		}
	}
	return worst(results, func(r *sim.Result) int { return verdict(e, r.Subject, r.Verdict, r.Errors) })
}

// runOne runs one simulation. Only the simulator can detect some bad configurations; those are usage errors as well.
func (c *Command) runOne(cfg sim.Config) (*sim.Result, error) {
	simulate := c.simulate
	if simulate == nil {
		simulate = sim.Run
	}
	r, err := simulate(cfg)
	if errors.Is(err, sim.ErrConfig) {
		return nil, cli.Usagef("%v", err)
	}
	return r, err
}
