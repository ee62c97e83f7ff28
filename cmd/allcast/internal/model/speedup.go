package model

import (
	"fmt"

	"github.com/allcast/allcast/cmd/allcast/internal/cli"
	"github.com/allcast/allcast/internal/model"
)

type speedupCmd struct {
	Ranks []int `default:"2,4,8,16,32,64,188,1024" placeholder:"LIST" help:"Numbers of ranks (default ${default})."`
}

func (speedupCmd) Help() string {
	return `An Allgather and a Reduce-Scatter at the same time, for each pair of algorithms, on a full-duplex,
non-blocking network (Appendix B). With --json, there is one line with "model":"speedup" per number of ranks
and pair. ag is the Allgather, rs the Reduce-Scatter. Names that end in _n are in units of N, or of N over
the rate.

Example:
  allcast model speedup --ranks 4,16,64`
}

func (c *speedupCmd) Run(e *cli.Env) error {
	if len(c.Ranks) == 0 {
		return cli.Usagef("--ranks: want numbers from %d to %d, separated by commas",
			model.MinSpeedupRanks, model.MaxSpeedupRanks)
	}
	var all []model.Speedup
	for _, p := range c.Ranks {
		s, err := model.Speedups(p)
		if err != nil {
			return cli.Usagef("--ranks: %v", err)
		}
		all = append(all, s...)
	}
	if !e.JSON {
		return e.PrintTable(speedupTable(all))
	}
	type line struct {
		Model string `json:"model"`
		model.Speedup
	}
	return printJSON(e, all, func(s model.Speedup) any { return line{"speedup", s} })
}

func speedupTable(all []model.Speedup) *cli.Table {
	var t cli.Table
	t.Note("Appendix B: {Allgather, Reduce-Scatter} at once on P ranks; mcast+inc over ring+ring is 2 - 2/P.")
	t.Note("N: what a rank sends in the Allgather and receives in the Reduce-Scatter.")
	t.Note("send, recv: bytes at the node boundary (Figure 3), in units of N.")
	t.Note("ag_*, rs_*: shares of the NIC's rate in that direction (equations 1 and 2).")
	t.Note("time: in units of N over the NIC's rate. speedup: over ring+ring.")
	t.Row("ranks", "algo", "send", "recv", "ag_send", "ag_recv", "rs_send", "rs_recv", "time", "speedup")
	for _, s := range all {
		t.Row(s.Ranks, s.Algo, s.Send, s.Recv, share(s.AllgatherSendShare), share(s.AllgatherRecvShare),
			share(s.ReduceScatterSendShare), share(s.ReduceScatterRecvShare), s.Time, share(s.Speedup))
	}
	return &t
}

// share has four digits, because a share is about a thousandth at 1024 ranks.
func share(x float64) string { return fmt.Sprintf("%.4f", x) }
