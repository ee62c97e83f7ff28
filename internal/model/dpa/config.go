package dpa

import (
	"errors"
	"fmt"
)

// ErrConfig marks an invalid configuration; the message says what is valid.
var ErrConfig = errors.New("accelerator")

// Bounds of a Config. They keep a run within seconds.
const (
	MaxChunk  = 16 << 20
	MaxChunks = 4 << 20 // per buffer
	MinLink   = 1e6
	MaxLink   = 1e14
	MaxPort   = 10000
)

// Config is one experiment: a buffer that arrives in chunks, and its receivers.
type Config struct {
	Transport Transport
	Threads   int
	Chunk     int64   // bytes
	Buffer    int64   // bytes
	Link      float64 // bit/s
	Queue     int     // receives posted per worker; 0 means QueueDepth
	Port      int64   // cycles for which an access occupies the core's memory port
	Sender    Sender
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
	return c.Sender.check(bad)
}

// wireBytes is the size of a chunk on the link, headers included.
func wireBytes(t Transport, chunk int64) int64 {
	if t == UD {
		return chunk + udHeader
	}
	further := (chunk - 1) / MTU
	return chunk + ucHeader + further*baseHeader
}

// Result is the outcome of a run.
type Result struct {
	Transport Transport `json:"transport"`
	Threads   int       `json:"threads"`
	Cores     int       `json:"cores"` // number of cores that the threads occupy
	Chunk     int64     `json:"chunk"`
	Buffer    int64     `json:"buffer"`
	Link      float64   `json:"link_bps"`
	Queue     int       `json:"queue"`
	Port      int64     `json:"port_cycles"`
	Window    int       `json:"window,omitempty"` // of the sender

	TimeUS     float64 `json:"time_us"`           // from the first bit on the link to the flag in host memory
	Throughput float64 `json:"throughput_gibps"`  // GiB/s of payload, as in Table I
	LinkShare  float64 `json:"link_share"`        // payload over the link's rate; headers keep it below 1
	ChunkRate  float64 `json:"chunks_per_s"`      // processed chunks
	Issue      float64 `json:"issue_utilisation"` // used share of the issue slots of the cores in use
	Idle       float64 `json:"poll_utilisation"`  // part of Issue spent on polls that found nothing
	Arrived    int64   `json:"arrived"`
	Processed  int64   `json:"processed"`
	Dropped    int64   `json:"dropped"`
	DropShare  float64 `json:"dropped_share"`
	Cycles     float64 `json:"cycles_per_chunk"` // of the thread, without the copy: Cycles/CQE of Table I
	Wait       float64 `json:"copy_cycles_per_chunk"`
}
