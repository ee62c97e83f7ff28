package sim

import (
	"github.com/allcast/allcast/cmd/allcast/internal/cli"
	"github.com/allcast/allcast/internal/model/dpa"
)

const idealDatapath = "ideal"

func (f *flags) checkDatapath() error {
	if f.Datapath == idealDatapath {
		return nil
	}
	d, err := dpa.ParseDatapath(f.Datapath)
	if err != nil {
		return cli.Usagef("--datapath: %v, or %s", err, idealDatapath)
	}
	switch {
	case f.RecvCost != 0:
		return cli.Usagef("--recv-cost is for --datapath ideal: an accelerator has its own cost")
	case f.RecvQueue != 0:
		return cli.Usagef("--recv-queue is for --datapath ideal: give the accelerator's as %s,queue=ENTRIES", f.Datapath)
	case d.Transport == dpa.UD && f.Chunk > dpa.MTU:
		return cli.Usagef("--chunk %v: want 1 to 4K, one datagram, with --datapath dpa:ud", f.Chunk)
	}
	return nil
}
