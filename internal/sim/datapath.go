package sim

import (
	"errors"

	"github.com/allcast/allcast/internal/model/dpa"
)

// ideal is the datapath whose only cost is RecvCost.
const ideal = "ideal"

// applyDatapath replaces the name of the datapath by its cost per chunk and its receive queue.
func (cfg *Config) applyDatapath() error {
	if cfg.Datapath == "" || cfg.Datapath == ideal {
		cfg.Datapath = ideal
		return nil
	}
	d, err := dpa.ParseDatapath(cfg.Datapath)
	if err != nil {
		return err
	}
	if cfg.RecvCost != 0 || cfg.RecvQueue != 0 {
		return errors.New("an accelerator has its own cost and its own receive queue: leave those of the host out")
	}
	pace, err := d.Pace(int64(cfg.Chunk))
	if err != nil {
		return err
	}
	cfg.Datapath, cfg.pace = d.String(), pace
	cfg.RecvQueue = int64(d.Queue) * int64(cfg.Chunk+udHeader)
	return nil
}
