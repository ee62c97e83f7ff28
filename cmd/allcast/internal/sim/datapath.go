package sim

import (
	"github.com/allcast/allcast/cmd/allcast/internal/cli"
	"github.com/allcast/allcast/internal/model/dpa"
	"github.com/allcast/allcast/internal/units"
)

const idealDatapath = "ideal"

func (m *multicastFlags) checkDatapath(chunk units.Size) error {
	if m.Datapath == idealDatapath {
		return nil
	}
	d, err := dpa.ParseDatapath(m.Datapath)
	if err != nil {
		return cli.Usagef("--datapath: %v, or %s", err, idealDatapath)
	}
	switch {
	case m.RecvCost != 0:
		return cli.Usagef("--recv-cost is for --datapath ideal: an accelerator has its own cost")
	case m.RecvQueue != 0:
		return cli.Usagef("--recv-queue is for --datapath ideal: give the accelerator's as %s,queue=ENTRIES", m.Datapath)
	case d.Transport == dpa.UD && chunk > dpa.MTU:
		return cli.Usagef("--chunk %v: want 1 to 4K, one datagram, with --datapath dpa:ud", chunk)
	}
	return nil
}
