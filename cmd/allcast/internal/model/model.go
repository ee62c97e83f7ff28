// Package model is "allcast model": it evaluates the paper's models.
package model

import "github.com/allcast/allcast/cmd/allcast/internal/cli"

// Command is "allcast model".
type Command struct {
	Traffic trafficCmd `cmd:"" help:"Block-link traversals of Allgather and Broadcast, by algorithm (Fig. 2)."`
	PSN     psnCmd     `cmd:"" name:"psn" help:"PSN bits against bitmap and buffer size; footprint (Fig. 7, Sec. III-D)."`
	Speedup speedupCmd `cmd:"" help:"Concurrent Allgather and Reduce-Scatter: shares, bytes, speed-up (Fig. 3, App. B)."`
	DPA     dpaCmd     `cmd:"" name:"dpa" help:"The NIC's accelerator: rate of the receive kernels (Table I, Fig. 13-16)."`
}

// Help implements kong.HelpProvider.
func (Command) Help() string {
	return "Example:\n  allcast model traffic --topology fat-tree3:1024,32"
}

// printJSON prints one line per item. A line is the item with the name of its model.
func printJSON[T any](e *cli.Env, items []T, line func(T) any) error {
	for _, item := range items {
		if err := e.PrintJSON(line(item)); err != nil {
			return err
		}
	}
	return nil
}
