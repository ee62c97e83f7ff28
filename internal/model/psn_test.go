package model_test

import (
	"testing"
	"time"

	"github.com/allcast/allcast/internal/model"
)

// paperLLC is the last-level cache of the paper's accelerator. The paper says 1.5 MB, which is read here
// as 1536 KiB; no claim depends on the difference.
const paperLLC = 1536 << 10

const (
	kib = int64(1) << 10
	mib = int64(1) << 20
	gib = int64(1) << 30
)

// The corners of the paper's Figure 7, with 4 KiB chunks and 1.5 MB of cache.
func TestFigure7(t *testing.T) {
	points, err := model.Figure7(4*kib, paperLLC)
	if err != nil {
		t.Fatal(err)
	}
	if len(points) != 25 || points[0].Bits != 8 || points[24].Bits != 32 {
		t.Fatalf("%d points, want one for each of 8 to 32 bits", len(points))
	}
	want := []model.PSN{
		{Bits: 8, BitmapBytes: 32, ReceiveBuffer: mib, OpIDs: 1 << 24, FitsLLC: true, Communicators: 95},
		{Bits: 19, BitmapBytes: 64 * kib, ReceiveBuffer: 2 * gib, OpIDs: 1 << 13, FitsLLC: true, Communicators: 19},
		{Bits: 22, BitmapBytes: 512 * kib, ReceiveBuffer: 16 * gib, OpIDs: 1 << 10, FitsLLC: true, Communicators: 2},
		{Bits: 23, BitmapBytes: mib, ReceiveBuffer: 32 * gib, OpIDs: 1 << 9, FitsLLC: true, Communicators: 1},
		{Bits: 24, BitmapBytes: 2 * mib, ReceiveBuffer: 64 * gib, OpIDs: 1 << 8, FitsLLC: false, Communicators: 0},
		{Bits: 32, BitmapBytes: 512 * mib, ReceiveBuffer: 16 << 40, OpIDs: 1, FitsLLC: false, Communicators: 0},
	}
	for _, w := range want {
		w.Chunk = 4 * kib
		if got := points[w.Bits-8]; got != w {
			t.Errorf("%d bits:\n got %+v\nwant %+v", w.Bits, got, w)
		}
	}
	for i, p := range points[1:] {
		if p.BitmapBytes != 2*points[i].BitmapBytes || p.OpIDs*2 != points[i].OpIDs {
			t.Errorf("%d bits: one more bit must double the bitmap and halve the operations: %+v", p.Bits, p)
		}
	}
}

// Claim C4: "the bitmap size that fits in the DPA LLC (1.5 MB) will allow
// addressing the Allgather receive buffer of approximately 50 GB".
func TestPaperC4(t *testing.T) {
	for _, llc := range []int64{1_500_000, paperLLC} { // both readings of MB
		gb := float64(model.Addressable(llc, 4*kib)) / 1e9
		if gb < 49 || gb > 52 {
			t.Errorf("%d bytes of bitmap address %.1f GB, the paper says approximately 50", llc, gb)
		}
	}
}

// Claim C5: Section III-D.
func TestPaperC5(t *testing.T) {
	for _, llc := range []int64{1_500_000, paperLLC} {
		f, err := model.NewFootprint(4*kib, llc)
		if err != nil {
			t.Fatal(err)
		}
		if f.StagingMax != 32*mib {
			t.Errorf("staging is at most %d bytes, the paper says 32 MiB", f.StagingMax)
		}
		if f.StagingPractical != 4*mib {
			t.Errorf("practical staging is %d bytes, the paper says 4 MiB", f.StagingPractical)
		}
		if f.ReliableConnections != 2 || f.MulticastQPs != 1 {
			t.Errorf("%d reliable connections and %d multicast QPs, the paper says 2 and 1",
				f.ReliableConnections, f.MulticastQPs)
		}
		if f.ExampleComms <= 16 {
			t.Errorf("%d communicators fit in %d bytes, the paper says more than 16", f.ExampleComms, llc)
		}
	}
}

// An error in the paper: 64 KiB of bitmap address 2 GiB, not 16 GB; 16 GiB need 512 KiB.
func TestPaperSlipBitmapOf64KiB(t *testing.T) {
	f, err := model.NewFootprint(4*kib, paperLLC)
	if err != nil {
		t.Fatal(err)
	}
	if f.ExampleBitmap != 64*kib || f.ExampleBuffer != 2*gib {
		t.Errorf("%d bytes of bitmap address %d bytes, want 64 KiB and 2 GiB", f.ExampleBitmap, f.ExampleBuffer)
	}
	if f.BitmapFor16GiB != 512*kib {
		t.Errorf("16 GiB need %d bytes of bitmap, want 512 KiB", f.BitmapFor16GiB)
	}
	// The paper's number holds for chunks eight times as large.
	if got := model.Addressable(64*kib, 32*kib); got != 16*gib {
		t.Errorf("64 KiB of bitmap at 32 KiB chunks address %d bytes, want 16 GiB", got)
	}
}

func TestBitmapForRoundsUp(t *testing.T) {
	for _, c := range []struct{ buffer, chunk, want int64 }{
		{0, 4096, 0},
		{1, 4096, 1},
		{8 * 4096, 4096, 1},
		{8*4096 + 1, 4096, 2},
	} {
		if got := model.BitmapFor(c.buffer, c.chunk); got != c.want {
			t.Errorf("BitmapFor(%d, %d) = %d, want %d", c.buffer, c.chunk, got, c.want)
		}
	}
}

func TestWireTime(t *testing.T) {
	if got := model.WireTime(4*mib, 200e9); got.Round(time.Microsecond) != 168*time.Microsecond {
		t.Errorf("4 MiB at 200 Gbit/s take %v, want 168 µs", got)
	}
}

func TestModelLimits(t *testing.T) {
	for _, c := range []struct{ chunk, llc int64 }{
		{0, paperLLC},
		{-1, paperLLC},
		{model.MaxChunk + 1, paperLLC},
		{4096, 0},
		{4096, -1},
		{4096, model.MaxLLC + 1},
	} {
		if _, err := model.Figure7(c.chunk, c.llc); err == nil {
			t.Errorf("Figure7(%d, %d) is accepted", c.chunk, c.llc)
		}
		if _, err := model.NewFootprint(c.chunk, c.llc); err == nil {
			t.Errorf("NewFootprint(%d, %d) is accepted", c.chunk, c.llc)
		}
	}
	points, err := model.Figure7(model.MaxChunk, model.MaxLLC)
	if err != nil {
		t.Fatal(err)
	}
	f, err := model.NewFootprint(model.MaxChunk, model.MaxLLC)
	if err != nil {
		t.Fatal(err)
	}
	if last := points[len(points)-1].ReceiveBuffer; last <= 0 || f.LLCBuffer <= 0 {
		t.Errorf("overflow at the limits: %d, %d", last, f.LLCBuffer)
	}
}
