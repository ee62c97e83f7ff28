package main

import (
	"fmt"

	"github.com/allcast/allcast/internal/model"
)

type modelSpeedupCmd struct {
	Ranks []int `default:"2,4,8,16,32,64,188,1024" placeholder:"LIST" help:"Numbers of ranks, separated by commas (default 2,4,8,16,32,64,188,1024)."`
}

func (modelSpeedupCmd) Help() string {
	return `An Allgather and a Reduce-Scatter at the same time, each pair of algorithms on a full-duplex, non-blocking network (Appendix B). With --json, a line with "model":"speedup" for each number of ranks and each pair; ag is the Allgather, rs the Reduce-Scatter, names that end in _n are in units of N, or of N over the rate.

Example:
  allcast model speedup --ranks 4,16,64`
}

func (c *modelSpeedupCmd) Run(a *app) error {
	if len(c.Ranks) == 0 {
		return usagef("--ranks: want numbers from %d to %d, separated by commas", model.MinSpeedupRanks, model.MaxSpeedupRanks)
	}
	var all []model.Speedup
	for _, p := range c.Ranks {
		s, err := model.Speedups(p)
		if err != nil {
			return usagef("--ranks: %v", err)
		}
		all = append(all, s...)
	}
	if !a.json {
		return speedupTable(all).print(a.stdout)
	}
	for _, s := range all {
		err := a.printJSON(struct {
			Model string `json:"model"`
			model.Speedup
		}{"speedup", s})
		if err != nil {
			return err
		}
	}
	return nil
}

func speedupTable(all []model.Speedup) *table {
	var t table
	t.note("Appendix B: {Allgather, Reduce-Scatter} at once on P ranks; mcast+inc over ring+ring is 2 - 2/P.")
	t.note("N: what a rank sends in the Allgather and receives in the Reduce-Scatter.")
	t.note("send, recv: bytes at the node boundary (Figure 3), in units of N.")
	t.note("ag_*, rs_*: shares of the NIC's rate in that direction (equations 1 and 2).")
	t.note("time: in units of N over the NIC's rate. speedup: over ring+ring.")
	t.row("ranks", "algo", "send", "recv", "ag_send", "ag_recv", "rs_send", "rs_recv", "time", "speedup")
	for _, s := range all {
		t.row(s.Ranks, s.Algo, s.Send, s.Recv, share(s.AllgatherSendShare), share(s.AllgatherRecvShare),
			share(s.ReduceScatterSendShare), share(s.ReduceScatterRecvShare), s.Time, share(s.Speedup))
	}
	return &t
}

// share keeps four digits: at 1024 ranks a share is a thousandth.
func share(x float64) string { return fmt.Sprintf("%.4f", x) }
