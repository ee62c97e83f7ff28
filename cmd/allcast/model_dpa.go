package main

import (
	"errors"
	"fmt"

	"github.com/allcast/allcast/internal/model/dpa"
	"github.com/allcast/allcast/internal/units"
)

type modelDPACmd struct {
	Transport []string     `default:"ud" placeholder:"LIST" help:"ud (each datagram is staged, then copied) or uc (chunks of any length, written in place); or both, separated by commas (default ud)."`
	Threads   []int        `default:"16" placeholder:"LIST" help:"Hardware threads, 1 to 256, 16 a core, separated by commas (default 16)."`
	Chunk     []units.Size `default:"4K" placeholder:"LIST" help:"Payload of a chunk: of one completion; at most 4K with ud (default 4K)."`
	Buffer    []units.Size `default:"8M" placeholder:"LIST" help:"Receive buffer that arrives (default 8M)."`
	Link      units.Rate   `default:"200gbit" placeholder:"RATE" help:"Rate at which chunks arrive, headers included (default 200gbit)."`
	Queue     int          `default:"8192" placeholder:"N" help:"Receives that each thread has posted; what finds none is dropped (default 8192)."`
	Port      int64        `default:"0" placeholder:"CYCLES" help:"How long a memory access keeps its core's others from starting (default 0; 30 is fitted to Figure 16)."`
	Table     bool         `help:"Print the paper, the model and linear extrapolation beside each other, and every parameter with its source; takes no other flag but --json."`
}

func (modelDPACmd) Help() string {
	return `The receive kernels of Section V and Appendix C as instruction costs on 16 cores of 16 threads, calibrated on Table I alone. Where lists are given, every combination runs. With --json, a line with "model":"dpa" for each; with --table, one for each table.

Example:
  allcast model dpa --transport ud,uc --threads 1,2,4,8,16
  allcast model dpa --table`
}

// maxDPARuns keeps a product of lists within a minute.
const maxDPARuns = 512

func (c *modelDPACmd) Run(a *app) error {
	if c.Table {
		return c.compare(a)
	}
	configs, err := c.configs()
	if err != nil {
		return err
	}
	var results []*dpa.Result
	for _, cfg := range configs {
		r, err := dpa.Run(cfg)
		if errors.Is(err, dpa.ErrConfig) {
			return usagef("%v", err)
		}
		if err != nil {
			return err
		}
		results = append(results, r)
	}
	if !a.json {
		return dpaTable(results).print(a.stdout)
	}
	for _, r := range results {
		err := a.printJSON(struct {
			Model string `json:"model"`
			*dpa.Result
		}{"dpa", r})
		if err != nil {
			return err
		}
	}
	return nil
}

// configs is every combination of the lists.
func (c *modelDPACmd) configs() ([]dpa.Config, error) {
	if c.Queue < 1 {
		return nil, usagef("--queue %d: want 1 or more", c.Queue)
	}
	n := len(c.Transport) * len(c.Threads) * len(c.Chunk) * len(c.Buffer)
	if n < 1 || n > maxDPARuns {
		return nil, usagef("%d combinations of --transport, --threads, --chunk and --buffer: want 1 to %d", n, maxDPARuns)
	}
	var all []dpa.Config
	for _, transport := range c.Transport {
		for _, buffer := range c.Buffer {
			for _, chunk := range c.Chunk {
				for _, threads := range c.Threads {
					all = append(all, dpa.Config{
						Transport: dpa.Transport(transport), Threads: threads, Chunk: int64(chunk), Buffer: int64(buffer),
						Link: float64(c.Link), Queue: c.Queue, Port: c.Port,
					})
				}
			}
		}
	}
	return all, nil
}

func dpaTable(results []*dpa.Result) *table {
	var t table
	r := results[0]
	t.note("The accelerator's receive kernel, modelled: link %v, receive queues of %d, memory port %d cycles.", units.Rate(r.Link), r.Queue, r.Port)
	t.note("gibps: GiB/s of payload, first bit to the flag in host memory. of_link: payload over the link's rate.")
	t.note("issue: share of the issue slots of the cores in use; polls: of these, by polls that found nothing.")
	t.note("cycles: of a thread for a chunk, as in Table I; copy: cycles it waits for the DMA besides.")
	t.row("transport", "threads", "chunk", "buffer", "gibps", "of_link", "chunks/s", "issue", "polls", "dropped", "cycles", "copy")
	for _, r := range results {
		t.row(r.Transport, r.Threads, units.Size(r.Chunk), units.Size(r.Buffer), r.Throughput, dpaShare(r.LinkShare), fmt.Sprintf("%.2fM", r.ChunkRate/1e6),
			dpaShare(r.Issue), dpaShare(r.Idle), dpaShare(r.DropShare), fmt.Sprintf("%.0f", r.Cycles), fmt.Sprintf("%.0f", r.Wait))
	}
	return &t
}

func dpaShare(x float64) string { return fmt.Sprintf("%.1f%%", 100*x) }
