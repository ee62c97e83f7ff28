package model

import (
	"github.com/allcast/allcast/cmd/allcast/internal/cli"
	"github.com/allcast/allcast/internal/model"
	"github.com/allcast/allcast/internal/units"
)

type psnCmd struct {
	Chunk units.Size `default:"4K" placeholder:"SIZE" help:"Payload of one datagram (default 4K)."`
	LLC   units.Size `name:"llc" default:"1536K" placeholder:"SIZE" help:"Cache for bitmaps (default 1536K, the paper's)."`
}

func (psnCmd) Help() string {
	return `The immediate of a datagram has 32 bits. The bits that number chunks (PSN) limit the receive buffer; the others
tell operations apart. With --json, there is one line with "kind":"psn" per number of bits, then one with
"kind":"footprint".

Example:
  allcast model psn --chunk 4K --llc 1536K`
}

func (c *psnCmd) Run(e *cli.Env) error {
	points, err := model.Figure7(int64(c.Chunk), int64(c.LLC))
	if err != nil {
		return cli.Usagef("%v", err)
	}
	footprint, err := model.NewFootprint(int64(c.Chunk), int64(c.LLC))
	if err != nil {
		return cli.Usagef("%v", err)
	}
	if e.JSON {
		return c.printJSON(e, points, footprint)
	}
	return c.printTables(e, points, footprint)
}

func (*psnCmd) printJSON(e *cli.Env, points []model.PSN, f model.Footprint) error {
	type line struct {
		Kind string `json:"kind"`
		model.PSN
	}
	if err := printJSON(e, points, func(p model.PSN) any { return line{"psn", p} }); err != nil {
		return err
	}
	return e.PrintJSON(struct {
		Kind string `json:"kind"`
		model.Footprint
	}{"footprint", f})
}

func (c *psnCmd) printTables(e *cli.Env, points []model.PSN, f model.Footprint) error {
	var figure cli.Table
	figure.Note("Figure 7: chunks of %v, a cache of %v. Sizes in bytes, binary suffixes.", c.Chunk, c.LLC)
	figure.Note("bitmap: one bit per chunk, as in the paper; Allcast itself keeps four bits per chunk.")
	figure.Note("recv_buffer: largest receive buffer of one operation.")
	figure.Note("communicators: number of bitmaps that fit in the cache, each with a context of %v.",
		units.Size(f.ContextBytes))
	figure.Row("psn_bits", "bitmap", "recv_buffer", "op_ids", "fits_llc", "communicators")
	for _, p := range points {
		figure.Row(p.Bits, units.Size(p.BitmapBytes), units.Size(p.ReceiveBuffer), p.OpIDs,
			cli.YesNo(p.FitsLLC), p.Communicators)
	}
	if err := e.PrintTable(&figure); err != nil {
		return err
	}

	memory := cli.Table{Left: true}
	memory.Note("")
	memory.Note("Section III-D: the memory of one rank, which does not depend on the number of ranks.")
	memory.Note("The paper's numbers are for chunks of 4K and a cache of 1.5 MB.")
	memory.Row("what", "ours", "paper")
	memory.Row("multicast QPs", f.MulticastQPs, 1)
	memory.Row("reliable connections (ring)", f.ReliableConnections, 2)
	memory.Row("receive queue, entries", f.ReceiveQueueDepth, 8192)
	memory.Row("staging at most", units.Size(f.StagingMax), "32M")
	memory.Row("staging in practice (measured by the authors)", "", "4M")
	memory.Row("... lasts at 200gbit, us", f.StagingPracticalUS, "")
	memory.Row("context of a communicator", units.Size(f.ContextBytes), "16K")
	memory.Row("buffer that a cache full of bitmap addresses", units.Size(f.LLCBuffer), "~50 GB")
	memory.Row("buffer that a bitmap of 64K addresses", units.Size(f.ExampleBuffer), "16 GB (a slip)")
	memory.Row("bitmap for a buffer of 16G", units.Size(f.BitmapFor16GiB), "64K (a slip)")
	memory.Row("communicators with a bitmap of 64K in the cache", f.ExampleComms, ">16")
	return e.PrintTable(&memory)
}
