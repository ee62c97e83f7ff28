package model

import "fmt"

// The immediate of a receive completion is 32 bits wide on every fabric. The
// PSN takes some of them and the operation the rest (paper, Fig. 7).
const (
	ImmediateBits = 32
	MinPSNBits    = 8
	MaxPSNBits    = ImmediateBits
)

// The limits of chunk and cache are far above real sizes. Their product with 8 bits per byte
// fits in 63 bits.
const (
	MaxChunk = 16 << 20
	MaxLLC   = 16 << 30
)

// PSN is one point of Figure 7: the buffer that a number of PSN bits can address, and the size
// of its bitmap.
type PSN struct {
	Bits          int   `json:"psn_bits"`
	Chunk         int64 `json:"chunk"`
	BitmapBytes   int64 `json:"bitmap_bytes"`      // one bit per chunk
	ReceiveBuffer int64 `json:"recv_buffer_bytes"` // the largest receive buffer of one operation
	OpIDs         int64 `json:"op_ids"`            // operations that the other bits can tell apart
	FitsLLC       bool  `json:"fits_llc"`
	Communicators int64 `json:"communicators"` // number that fits in the cache, contexts included
}

// Figure7 computes the figure for one chunk size and one cache.
func Figure7(chunk, llc int64) ([]PSN, error) {
	if err := checkCache(chunk, llc); err != nil {
		return nil, err
	}
	var points []PSN
	for bits := MinPSNBits; bits <= MaxPSNBits; bits++ {
		bitmap := int64(1) << bits / 8
		points = append(points, PSN{
			Bits:          bits,
			Chunk:         chunk,
			BitmapBytes:   bitmap,
			ReceiveBuffer: Addressable(bitmap, chunk),
			OpIDs:         1 << (ImmediateBits - bits),
			FitsLLC:       bitmap <= llc,
			Communicators: CommunicatorsThatFit(llc, bitmap),
		})
	}
	return points, nil
}

// Addressable is the size of the receive buffer that a bitmap covers.
func Addressable(bitmap, chunk int64) int64 { return bitmap * 8 * chunk }

func checkCache(chunk, llc int64) error {
	if chunk < 1 || chunk > MaxChunk {
		return fmt.Errorf("a chunk of %d bytes: want 1 to %d (16M)", chunk, int64(MaxChunk))
	}
	if llc < 1 || llc > MaxLLC {
		return fmt.Errorf("a cache of %d bytes: want 1 to %d (16G)", llc, int64(MaxLLC))
	}
	return nil
}
