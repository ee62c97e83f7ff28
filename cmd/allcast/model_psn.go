package main

import (
	"github.com/allcast/allcast/internal/model"
	"github.com/allcast/allcast/internal/units"
)

type modelPSNCmd struct {
	Chunk units.Size `default:"4K" placeholder:"SIZE" help:"Payload of one datagram (default 4K)."`
	LLC   units.Size `name:"llc" default:"1536K" placeholder:"SIZE" help:"Cache that the bitmaps should fit in (default 1536K, the paper's accelerator)."`
}

func (modelPSNCmd) Help() string {
	return `The immediate of a datagram has 32 bits; those that number chunks (PSN) bound the receive buffer, the rest tell operations apart. With --json, a line with "kind":"psn" for each number of bits, then one with "kind":"footprint".

Example:
  allcast model psn --chunk 4K --llc 1536K`
}

func (c *modelPSNCmd) Run(a *app) error {
	points, err := model.Figure7(int64(c.Chunk), int64(c.LLC))
	if err != nil {
		return usagef("%v", err)
	}
	footprint, err := model.NewFootprint(int64(c.Chunk), int64(c.LLC))
	if err != nil {
		return usagef("%v", err)
	}
	if a.json {
		return c.printJSON(a, points, footprint)
	}
	return c.printTables(a, points, footprint)
}

func (*modelPSNCmd) printJSON(a *app, points []model.PSN, f model.Footprint) error {
	for _, p := range points {
		err := a.printJSON(struct {
			Kind string `json:"kind"`
			model.PSN
		}{"psn", p})
		if err != nil {
			return err
		}
	}
	return a.printJSON(struct {
		Kind string `json:"kind"`
		model.Footprint
	}{"footprint", f})
}

func (c *modelPSNCmd) printTables(a *app, points []model.PSN, f model.Footprint) error {
	var figure table
	figure.note("Figure 7: chunks of %v, a cache of %v. Sizes in bytes, binary suffixes.", c.Chunk, c.LLC)
	figure.note("bitmap: one bit per chunk, as in the paper; Allcast itself keeps four bits per chunk.")
	figure.note("recv_buffer: the largest that one operation can fill.")
	figure.note("communicators: how many bitmaps, each with a context of %v, the cache holds.", units.Size(f.ContextBytes))
	figure.row("psn_bits", "bitmap", "recv_buffer", "op_ids", "fits_llc", "communicators")
	for _, p := range points {
		figure.row(p.Bits, units.Size(p.BitmapBytes), units.Size(p.ReceiveBuffer), p.OpIDs, yesNo(p.FitsLLC), p.Communicators)
	}
	if err := figure.print(a.stdout); err != nil {
		return err
	}

	memory := table{left: true}
	memory.note("")
	memory.note("Section III-D: the memory of one rank, whatever the number of ranks.")
	memory.note("The paper's numbers are for chunks of 4K and a cache of 1.5 MB.")
	memory.row("what", "ours", "paper")
	memory.row("multicast QPs", f.MulticastQPs, 1)
	memory.row("reliable connections (ring)", f.ReliableConnections, 2)
	memory.row("receive queue, entries", f.ReceiveQueueDepth, 8192)
	memory.row("staging at most", units.Size(f.StagingMax), "32M")
	memory.row("staging in practice (measured by the authors)", "", "4M")
	memory.row("... lasts at 200gbit, us", f.StagingPracticalUS, "")
	memory.row("context of a communicator", units.Size(f.ContextBytes), "16K")
	memory.row("buffer that a cache full of bitmap addresses", units.Size(f.LLCBuffer), "~50 GB")
	memory.row("buffer that a bitmap of 64K addresses", units.Size(f.ExampleBuffer), "16 GB (a slip)")
	memory.row("bitmap for a buffer of 16G", units.Size(f.BitmapFor16GiB), "64K (a slip)")
	memory.row("communicators with a bitmap of 64K in the cache", f.ExampleComms, ">16")
	return memory.print(a.stdout)
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}
