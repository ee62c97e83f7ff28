package dpa

import (
	"errors"
	"fmt"
)

// ErrConfig is a configuration that makes no sense; the message says what would.
var ErrConfig = errors.New("accelerator")

// Bounds of a Config. They keep a run within seconds.
const (
	MaxChunk  = 16 << 20
	MaxChunks = 4 << 20 // of a buffer
	MinLink   = 1e6
	MaxLink   = 1e14
	MaxPort   = 10000
)

// Config is one experiment: a buffer that arrives in chunks, and who receives it.
type Config struct {
	Transport Transport
	Threads   int
	Chunk     int64   // bytes
	Buffer    int64   // bytes
	Link      float64 // bit/s
	Queue     int     // receives that a worker has posted; 0: QueueDepth
	Port      int64   // cycles an access keeps the core's memory port busy
}

func (c Config) check() error {
	bad := func(format string, args ...any) error {
		return fmt.Errorf("%w: %s", ErrConfig, fmt.Sprintf(format, args...))
	}
	switch {
	case c.Transport != UD && c.Transport != UC:
		return bad("unknown transport %q; valid: ud, uc", string(c.Transport))
	case c.Threads < 1 || c.Threads > MaxThreads:
		return bad("%d threads: want 1 to %d", c.Threads, MaxThreads)
	case c.Chunk < 1 || c.Chunk > MaxChunk:
		return bad("a chunk of %d bytes: want 1 to %d", c.Chunk, MaxChunk)
	case c.Transport == UD && c.Chunk > MTU:
		return bad("a chunk of %d bytes does not fit one datagram: with ud, want 1 to %d", c.Chunk, MTU)
	case c.Buffer < 1:
		return bad("a buffer of %d bytes: want 1 or more", c.Buffer)
	case (c.Buffer-1)/c.Chunk >= MaxChunks:
		return bad("a buffer of %d bytes in chunks of %d: want %d chunks at most", c.Buffer, c.Chunk, MaxChunks)
	case !(c.Link >= MinLink && c.Link <= MaxLink):
		return bad("a link of %g bit/s: want 1mbit to 100000gbit", c.Link)
	case c.Queue < 0 || c.Queue > MaxChunks:
		return bad("a receive queue of %d entries: want 1 to %d", c.Queue, MaxChunks)
	case c.Port < 0 || c.Port > MaxPort:
		return bad("a port busy for %d cycles: want 0 to %d", c.Port, MaxPort)
	}
	return nil
}

// wireBytes is what a chunk takes on the link.
func wireBytes(t Transport, chunk int64) int64 {
	if t == UD {
		return chunk + udHeader
	}
	further := (chunk - 1) / MTU
	return chunk + ucHeader + further*baseHeader
}

// Result is what a run measured.
type Result struct {
	Transport Transport `json:"transport"`
	Threads   int       `json:"threads"`
	Cores     int       `json:"cores"` // that these threads occupy
	Chunk     int64     `json:"chunk"`
	Buffer    int64     `json:"buffer"`
	Link      float64   `json:"link_bps"`
	Queue     int       `json:"queue"`
	Port      int64     `json:"port_cycles"`

	TimeUS     float64 `json:"time_us"`           // first bit on the link to the flag in host memory
	Throughput float64 `json:"throughput_gibps"`  // GiB/s of payload, as in Table I
	LinkShare  float64 `json:"link_share"`        // payload over the link's rate; headers keep it below 1
	ChunkRate  float64 `json:"chunks_per_s"`      // processed
	Issue      float64 `json:"issue_utilisation"` // of the issue slots of the cores in use
	Idle       float64 `json:"poll_utilisation"`  // of these, by polls that found nothing
	Arrived    int64   `json:"arrived"`
	Processed  int64   `json:"processed"`
	Dropped    int64   `json:"dropped"`
	DropShare  float64 `json:"dropped_share"`
	Cycles     float64 `json:"cycles_per_chunk"` // of the thread, the copy aside: Cycles/CQE of Table I
	Wait       float64 `json:"copy_cycles_per_chunk"`
}
