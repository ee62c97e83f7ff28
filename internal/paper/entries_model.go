package paper

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/allcast/allcast/internal/figure"
	"github.com/allcast/allcast/internal/mcast"
	"github.com/allcast/allcast/internal/model"
	"github.com/allcast/allcast/internal/model/dpa"
	"github.com/allcast/allcast/internal/wire"
)

// modelEntries are the entries that need only the models and the protocol's own rules.
var modelEntries = []Entry{
	{ID: "fig7", Quick: time.Second, Full: time.Second, Run: figure7},
	{ID: "C4", Quick: time.Second, Full: time.Second, Run: bitmapSize},
	{ID: "C5", Quick: time.Second, Full: time.Second, Run: footprint},
	{ID: "appA", Quick: time.Second, Full: time.Second, Run: appendixA},
	{ID: "C6", Quick: time.Second, Full: time.Second, Run: chainSchedule},
}

const (
	paperChunk = 4 << 10
	psnCommand = "allcast model psn --chunk 4K --llc 1536K"
)

// cacheSizes are both meanings of the paper's "1.5 MB", the cache of its accelerator.
var cacheSizes = []int64{1_500_000, 1536 << 10}

// addressed returns the receive buffers that bitmaps as large as the cache address, in GB, and whether they are the
// paper's "approximately 50 GB".
func addressed() (gb []float64, ok bool) {
	ok = true
	for _, cache := range cacheSizes {
		size := float64(model.Addressable(cache, paperChunk)) / 1e9
		gb, ok = append(gb, size), ok && size >= 49 && size <= 52
	}
	return gb, ok
}

// figure7 shows bitmap and receive buffer by PSN bits.
func figure7(context.Context, *Env) (*Outcome, error) {
	points, err := model.Figure7(paperChunk, cacheSizes[1])
	if err != nil {
		return nil, err
	}
	table := Table{
		Name: "sizes", Title: "Bitmap and receive buffer by PSN bits, chunks of 4 KiB",
		Columns: []string{"PSN bits", "bitmap, bytes", "receive buffer, bytes", "operations", "fits 1.5 MiB"},
	}
	bitmap := figure.Series{Name: "bitmap", Style: figure.Line}
	buffer := figure.Series{Name: "receive buffer", Style: figure.Line}
	for _, p := range points {
		fits := "no"
		if p.FitsLLC {
			fits = "yes"
		}
		table.Rows = append(table.Rows, []any{p.Bits, p.BitmapBytes, p.ReceiveBuffer, p.OpIDs, fits})
		bitmap.Data = append(bitmap.Data, figure.Point{X: float64(p.Bits), Y: float64(p.BitmapBytes)})
		buffer.Data = append(buffer.Data, figure.Point{X: float64(p.Bits), Y: float64(p.ReceiveBuffer)})
	}
	series := []figure.Series{bitmap, buffer}
	for _, name := range []string{"bitmap as large as the cache", "example of many communicators (a slip)"} {
		s := paperPoints("fig7", name, figure.Points)
		for i, p := range s.Data { // the paper names a bitmap; the axis shows the bits that number its chunks
			s.Data[i].X = math.Log2(p.X * 8)
		}
		series = append(series, s)
	}
	gb, ok := addressed()
	return &Outcome{
		Verdict: verdictIf(ok),
		Ours: fmt.Sprintf("A bitmap of 1.5 MB addresses %.1f GB, one of 1.5 MiB %.1f GB. The paper's example of "+
			"64 KiB of bitmap addresses 2 GiB, not 16 GB.", gb[0], gb[1]),
		Command: psnCommand,
		Tables:  []Table{table},
		Figures: []NamedFigure{{"sizes", figure.Figure{
			Title: "Bitmap and receive buffer, chunks of 4 KiB",
			X:     figure.Axis{Label: "PSN bits"}, Y: figure.Axis{Label: "size, bytes", Log: 2}, Series: series,
		}}},
	}, nil
}

// bitmapSize checks C4 with the protocol's own bitmap and immediate.
func bitmapSize(context.Context, *Env) (*Outcome, error) {
	layout, err := wire.NewLayout(wire.DefaultPSNBits)
	if err != nil {
		return nil, err
	}
	table := Table{
		Name: "buffers", Title: "Receive buffer of a bitmap as large as the cache",
		Columns: []string{"cache, bytes", "chunks", "receive buffer, GB", "PSNs of Allcast's immediate"},
	}
	gb, ok := addressed()
	for i, cache := range cacheSizes {
		chunks := uint32(cache * 8)
		b := mcast.NewBitmap(chunks)
		b.SetRange(0, chunks)
		ok = ok && int64(b.Count()) <= layout.Capacity()
		table.Rows = append(table.Rows, []any{cache, b.Count(), gb[i], layout.Capacity()})
	}
	return &Outcome{
		Verdict: verdictIf(ok),
		Ours: fmt.Sprintf("%.1f to %.1f GB with one bit per chunk; the chunks fit the %d PSN bits of Allcast's "+
			"immediate.", gb[0], gb[1], wire.DefaultPSNBits),
		Reason:  "Allcast's own record takes four bits per chunk, because the kernel and the slow path share it.",
		Command: psnCommand,
		Tables:  []Table{table},
	}, nil
}

// footprint checks C5. The accelerator's model shows whether 4 MiB of staging are enough.
func footprint(context.Context, *Env) (*Outcome, error) {
	f, err := model.NewFootprint(paperChunk, cacheSizes[0])
	if err != nil {
		return nil, err
	}
	const threads = dpa.ThreadsPerCore
	staged, err := dpa.Run(dpa.Config{
		Transport: dpa.UD, Threads: threads, Chunk: paperChunk, Buffer: 64 << 20, Link: model.PracticalRate,
		Queue: model.PracticalStaging / paperChunk / threads,
	})
	if err != nil {
		return nil, err
	}
	const ranks = 188
	peers := len(mcast.AppendPeers(nil, 1, ranks))
	table := Table{
		Name: "resources", Title: "Resources of a communicator on one rank", Columns: []string{"what", "paper", "ours"},
		Rows: [][]any{
			{"multicast queue pairs", "1", f.MulticastQPs},
			{"reliable connections, ring", "2", f.ReliableConnections},
			{"reliable connections with the barrier's partners, 188 ranks", "", peers},
			{"staging at most, bytes", "33554432 (32 MiB)", f.StagingMax},
			{"chunks dropped with 4 MiB of staging at 200 Gbit/s, modelled", "0", staged.Dropped},
			{"share of 200 Gbit/s with 4 MiB of staging, modelled", "", staged.LinkShare},
			{"communicators in 1.5 MB, bitmaps of 64 KiB", "more than 16", f.ExampleComms},
			{"receive buffer of a bitmap of 64 KiB, bytes", "16 GB (a slip)", f.ExampleBuffer},
		},
	}
	return &Outcome{
		Verdict: verdictIf(f.StagingMax == 32<<20 && staged.Dropped == 0 && f.ReliableConnections == 2 &&
			f.ExampleComms > 16),
		Ours: fmt.Sprintf("At most %d MiB of staging; 4 MiB drop %d chunks at 200 Gbit/s in the accelerator's model; "+
			"%d connections for the ring; %d communicators.",
			f.StagingMax>>20, staged.Dropped, f.ReliableConnections, f.ExampleComms),
		Reason:  "Allcast's barrier uses further connections, one per round: log P of them.",
		Command: psnCommand + " && allcast model dpa --threads 16 --buffer 64M --queue 64",
		Tables:  []Table{table},
	}, nil
}
