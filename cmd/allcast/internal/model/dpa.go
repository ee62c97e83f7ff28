package model

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/allcast/allcast/cmd/allcast/internal/cli"
	"github.com/allcast/allcast/internal/model/dpa"
	"github.com/allcast/allcast/internal/units"
)

type dpaCmd struct {
	Transport []string     `default:"ud" placeholder:"LIST"`
	Threads   []int        `default:"16" placeholder:"LIST"`
	Chunk     []units.Size `default:"4K" placeholder:"LIST"`
	Buffer    []units.Size `default:"8M" placeholder:"LIST" help:"Size of the received buffer (default 8M)."`
	Link      units.Rate   `default:"200gbit" placeholder:"RATE"`
	Queue     int          `default:"8192" placeholder:"N"`
	Port      int64        `default:"0" placeholder:"CYCLES"`
	Window    int          `default:"0" placeholder:"N"`
	Post      time.Duration
	Ack       time.Duration
	Table     bool
}

// FlagHelp implements cli.FlagHelp.
func (dpaCmd) FlagHelp() map[string]string {
	return map[string]string{
		"transport": "ud (each datagram is staged, then copied) or uc (chunks of any length, written in place); or both, " +
			"separated by commas (default ud).",
		"threads": "Hardware threads, 1 to 256, 16 per core, separated by commas (default 16).",
		"chunk":   "Payload of a chunk, that is, of one completion; at most 4K with ud (default 4K).",
		"link":    "Rate at which chunks arrive, headers included (default 200gbit).",
		"queue":   "Posted receives per thread; a chunk that finds none is dropped (default 8192).",
		"port":    "Cycles for which a memory access blocks others of the same core (default 0; 30 is fitted to Figure 16).",
		"window": "Chunks that the sender posts per connection at a time, when all earlier ones are acknowledged; 128 is " +
			"that of the authors' benchmark, 0 means that it always has chunks to send (default 0).",
		"post": "Time that the sender takes to post a chunk; needs --window (default 40ns).",
		"ack": "Time from the end of a window on the link to the start of posting the next one; needs --window " +
			"(default 3us).",
		"table": "Print the paper, the model and linear extrapolation side by side, and every parameter with its source; " +
			"the only other flag it takes is --json.",
	}
}

func (dpaCmd) Help() string {
	return `The receive kernels of Section V and Appendix C as instruction costs on 16 cores of 16 threads, calibrated on
Table I alone. Every combination of the lists runs. With --json, there is one line with "model":"dpa" per
combination, or per table with --table.

Example:
  allcast model dpa --transport ud,uc --threads 1,2,4,8,16
  allcast model dpa --transport ud,uc --threads 1,2,4,8,16 --window 128
  allcast model dpa --table`
}

// maxRuns limits the combinations to what runs within a minute.
const maxRuns = 512

func (c *dpaCmd) Run(e *cli.Env) error {
	if c.Table {
		return printComparison(e, dpa.Compare())
	}
	configs, err := c.configs()
	if err != nil {
		return err
	}
	var results []*dpa.Result
	for _, cfg := range configs {
		r, err := dpa.Run(cfg)
		if errors.Is(err, dpa.ErrConfig) {
			return cli.Usagef("%v", err)
		}
		if err != nil {
			return err
		}
		results = append(results, r)
	}
	if !e.JSON {
		return e.PrintTable(runsTable(results))
	}
	type line struct {
		Model string `json:"model"`
		*dpa.Result
	}
	return printJSON(e, results, func(r *dpa.Result) any { return line{"dpa", r} })
}

// configs returns every combination of the lists.
func (c *dpaCmd) configs() ([]dpa.Config, error) {
	if c.Queue < 1 {
		return nil, cli.Usagef("--queue %d: want 1 or more", c.Queue)
	}
	n := len(c.Transport) * len(c.Threads) * len(c.Chunk) * len(c.Buffer)
	if n < 1 || n > maxRuns {
		return nil, cli.Usagef("%d combinations of --transport, --threads, --chunk and --buffer: want 1 to %d", n, maxRuns)
	}
	sender, err := c.sender()
	if err != nil {
		return nil, err
	}
	var all []dpa.Config
	for _, transport := range c.Transport {
		for _, buffer := range c.Buffer {
			for _, chunk := range c.Chunk {
				for _, threads := range c.Threads {
					all = append(all, dpa.Config{
						Transport: dpa.Transport(transport), Threads: threads, Chunk: int64(chunk), Buffer: int64(buffer),
						Link: float64(c.Link), Queue: c.Queue, Port: c.Port, Sender: sender,
					})
				}
			}
		}
	}
	return all, nil
}

func (c *dpaCmd) sender() (dpa.Sender, error) {
	if c.Window == 0 {
		if c.Post != 0 || c.Ack != 0 {
			return dpa.Sender{}, cli.Usagef("--post and --ack describe a sender with a window: add --window")
		}
		return dpa.Sender{}, nil
	}
	s := dpa.BenchmarkSender
	s.Window, s.Post, s.Ack = c.Window, cmp.Or(c.Post, s.Post), cmp.Or(c.Ack, s.Ack)
	return s, nil
}

func runsTable(results []*dpa.Result) *cli.Table {
	var t cli.Table
	r := results[0]
	t.Note("The accelerator's receive kernel, modelled: link %v, receive queues of %d, memory port %d cycles.",
		units.Rate(r.Link), r.Queue, r.Port)
	if r.Window > 0 {
		t.Note("The sender posts %d chunks per connection at a time, and waits until they are acknowledged.", r.Window)
	}
	t.Note("gibps: GiB/s of payload, first bit to the flag in host memory. of_link: payload over the link's rate.")
	t.Note("issue: used share of the issue slots of the active cores; polls: share used by polls that found nothing.")
	t.Note("cycles: thread cycles per chunk, as in Table I; copy: additional cycles of waiting for the DMA.")
	t.Row("transport", "threads", "chunk", "buffer", "gibps", "of_link", "chunks/s",
		"issue", "polls", "dropped", "cycles", "copy")
	for _, r := range results {
		t.Row(r.Transport, r.Threads, units.Size(r.Chunk), units.Size(r.Buffer), r.Throughput,
			percent(r.LinkShare), fmt.Sprintf("%.2fM", r.ChunkRate/1e6), percent(r.Issue), percent(r.Idle), percent(r.DropShare),
			fmt.Sprintf("%.0f", r.Cycles), fmt.Sprintf("%.0f", r.Wait))
	}
	return &t
}

func percent(x float64) string { return fmt.Sprintf("%.1f%%", 100*x) }
