package model

import "time"

// The assumptions of Section III-D.
const (
	ReceiveQueueDepth   = 8192     // maximum receives posted on one UD QP
	PracticalStaging    = 4 << 20  // enough at PracticalRate, as the authors measured
	PracticalRate       = 200e9    // bit/s
	ContextBytes        = 16 << 10 // context of a communicator without its bitmap
	PaperBitmap         = 64 << 10 // the bitmap in the paper's example of many communicators
	PaperReceiveBuffer  = 16 << 30 // buffer that PaperBitmap addresses according to the paper; see Footprint
	MulticastQPs        = 1        // one UD QP sends to and receives from all ranks
	ReliableConnections = 2        // to the left and the right neighbour in the ring
)

// Footprint is the memory that one rank's communicators need (Section III-D), for one
// chunk size and one cache. Nothing depends on the number of ranks, and only the bitmap
// depends on the size of the buffer.
//
// The paper's example says that a bitmap of 64 KiB is "up to 16 GB" of receive
// buffer. Recomputed at 4 KiB chunks it is 2 GiB; 16 GiB needs 512 KiB.
// ExampleBuffer and BitmapFor16GiB show both.
type Footprint struct {
	Chunk               int64   `json:"chunk"`
	LLC                 int64   `json:"llc_bytes"`
	MulticastQPs        int     `json:"multicast_qps"`
	ReliableConnections int     `json:"reliable_connections"`
	ReceiveQueueDepth   int     `json:"recv_queue_depth"`
	StagingMax          int64   `json:"staging_max_bytes"`
	StagingPractical    int64   `json:"staging_practical_bytes"`
	StagingPracticalUS  float64 `json:"staging_practical_us"` // of traffic at 200 Gbit/s
	ContextBytes        int64   `json:"context_bytes"`
	LLCBuffer           int64   `json:"llc_bitmap_buffer_bytes"` // addressed by a bitmap that fills the cache
	ExampleBitmap       int64   `json:"example_bitmap_bytes"`
	ExampleBuffer       int64   `json:"example_buffer_bytes"`
	ExampleComms        int64   `json:"example_communicators"`
	BitmapFor16GiB      int64   `json:"bitmap_for_16gib_bytes"`
}

// NewFootprint computes the section's numbers.
func NewFootprint(chunk, llc int64) (Footprint, error) {
	if err := checkCache(chunk, llc); err != nil {
		return Footprint{}, err
	}
	return Footprint{
		Chunk:               chunk,
		LLC:                 llc,
		MulticastQPs:        MulticastQPs,
		ReliableConnections: ReliableConnections,
		ReceiveQueueDepth:   ReceiveQueueDepth,
		StagingMax:          ReceiveQueueDepth * chunk,
		StagingPractical:    PracticalStaging,
		StagingPracticalUS:  float64(WireTime(PracticalStaging, PracticalRate)) / float64(time.Microsecond),
		ContextBytes:        ContextBytes,
		LLCBuffer:           Addressable(llc, chunk),
		ExampleBitmap:       PaperBitmap,
		ExampleBuffer:       Addressable(PaperBitmap, chunk),
		ExampleComms:        CommunicatorsThatFit(llc, PaperBitmap),
		BitmapFor16GiB:      BitmapFor(PaperReceiveBuffer, chunk),
	}, nil
}

// CommunicatorsThatFit is the number of communicators whose bitmaps and contexts fit in a cache.
func CommunicatorsThatFit(llc, bitmap int64) int64 { return llc / (bitmap + ContextBytes) }

// BitmapFor is the size in bytes of the bitmap for a receive buffer.
func BitmapFor(buffer, chunk int64) int64 {
	chunks := ceilDiv(buffer, chunk)
	return ceilDiv(chunks, 8)
}

// WireTime is the time that a link of the given rate (bit/s) takes for n bytes. A staging
// ring of n bytes absorbs a worker's pause of this length.
func WireTime(n int64, rate float64) time.Duration {
	return time.Duration(float64(n) * 8 / rate * float64(time.Second))
}

func ceilDiv(a, b int64) int64 { return (a + b - 1) / b }
