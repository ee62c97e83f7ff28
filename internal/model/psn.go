package model

import "fmt"

// The immediate of a receive completion is 32 bits wide on every fabric. The
// PSN takes some of them and the operation the rest (paper, Fig. 7).
const (
	ImmediateBits = 32
	MinPSNBits    = 8
	MaxPSNBits    = ImmediateBits
)

// DefaultLLC is the last-level cache of the paper's accelerator. The paper says 1.5 MB, which
// is read here as 1536 KiB; no claim depends on the difference.
const DefaultLLC = 1536 << 10

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
	var points []PSN
	for bits := MinPSNBits; bits <= MaxPSNBits; bits++ {
		p, err := AtPSNBits(bits, chunk, llc)
		if err != nil {
			return nil, err
		}
		points = append(points, p)
	}
	return points, nil
}

// AtPSNBits computes one point of the figure.
func AtPSNBits(bits int, chunk, llc int64) (PSN, error) {
	if bits < MinPSNBits || bits > MaxPSNBits {
		return PSN{}, fmt.Errorf("%d PSN bits: want %d to %d", bits, MinPSNBits, MaxPSNBits)
	}
	if err := checkCache(chunk, llc); err != nil {
		return PSN{}, err
	}
	bitmap := int64(1) << bits / 8
	return PSN{
		Bits:          bits,
		Chunk:         chunk,
		BitmapBytes:   bitmap,
		ReceiveBuffer: Addressable(bitmap, chunk),
		OpIDs:         1 << (ImmediateBits - bits),
		FitsLLC:       bitmap <= llc,
		Communicators: CommunicatorsThatFit(llc, bitmap),
	}, nil
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
