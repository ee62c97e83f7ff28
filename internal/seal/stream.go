package seal

import (
	"crypto/cipher"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
)

// A stream is cut into records, little endian:
//
//	length of the text u32, text, trailer
//
// The trailer of a sealed record is the GCM tag; the length is additional data, and the record's number
// is the nonce. The trailer of a checked record is a CRC32C over number, length and text. Either trailer
// detects a record that was changed, dropped, repeated or reordered.
const (
	recordHead = 4
	sumSize    = 4
	// MaxRecord is the maximum text length of a record, and bounds the memory of a reader.
	MaxRecord = 64 << 10
)

// ErrRecord marks a record that differs from the one that was sent.
var ErrRecord = errors.New("damaged record")

// A Direction protects one direction of a connection. Each end of the connection has its own, which must
// not be used concurrently.
type Direction struct {
	aead   cipher.AEAD // nil for checksums
	number uint64
	nonce  [nonceSize]byte
}

// Direction returns the sealed direction with this label. Both ends use the same label, and the opposite
// direction uses a different one.
func (m *Master) Direction(label string) *Direction {
	return &Direction{aead: m.gcm("allcast stream\x00" + label)}
}

// Checked returns a direction that detects accidental changes only.
func Checked() *Direction { return &Direction{} }

func (d *Direction) trailer() int {
	if d.aead == nil {
		return sumSize
	}
	return TagSize
}

// next returns the nonce of the next record.
func (d *Direction) next() []byte {
	if d.number == math.MaxUint64 {
		panic("seal: a stream of 2^64 records")
	}
	binary.LittleEndian.PutUint64(d.nonce[:], d.number)
	d.number++
	return d.nonce[:]
}

// Append appends the records of a text to dst. The caller must send records in the order in which they
// were made. text must not overlap dst's free memory.
func (d *Direction) Append(dst, text []byte) []byte {
	for len(text) > 0 {
		n := min(len(text), MaxRecord)
		head := len(dst)
		dst = binary.LittleEndian.AppendUint32(dst, uint32(n))
		if d.aead != nil {
			dst = d.aead.Seal(dst, d.next(), text[:n], dst[head:])
		} else {
			dst = append(dst, text[:n]...)
			dst = binary.LittleEndian.AppendUint32(dst, Sum(Sum(0, d.next()), dst[head:]))
		}
		text = text[n:]
	}
	return dst
}

// A Reader is the receiving end of a direction.
type Reader struct {
	d       *Direction
	r       io.Reader
	buf     []byte
	at, end int    // range of buf that was read but not processed
	text    []byte // rest of the last record's text, in buf
	bad     error  // permanent error
}

// readAhead is the initial buffer size: one read brings many small records. A larger record grows the
// buffer to readLarge, because a connection that is read in small portions stalls.
const (
	readAhead = 16 << 10
	readLarge = 4 * (recordHead + MaxRecord + TagSize)
)

// NewReader returns a Reader of the records of r. After an error of r other than io.EOF, the caller may
// call Read again.
func NewReader(d *Direction, r io.Reader) *Reader {
	return &Reader{d: d, r: r, buf: make([]byte, readAhead)}
}

// Read implements io.Reader. io.EOF means that r ended between two records. Only the text can tell
// whether the stream is complete.
func (r *Reader) Read(b []byte) (int, error) {
	if len(r.text) == 0 && len(b) > 0 {
		if err := r.record(); err != nil {
			return 0, err
		}
	}
	n := copy(b, r.text)
	r.text = r.text[n:]
	return n, nil
}

// record reads and checks the next record.
func (r *Reader) record() error {
	if r.bad != nil {
		return r.bad
	}
	if err := r.fill(recordHead); err != nil {
		return err
	}
	n := binary.LittleEndian.Uint32(r.buf[r.at:])
	if n == 0 || n > MaxRecord {
		r.bad = fmt.Errorf("%w: %d bytes long", ErrRecord, n)
		return r.bad
	}
	size := recordHead + int(n) + r.d.trailer()
	if err := r.fill(size); err != nil {
		return err
	}
	r.text, r.bad = r.d.unwrap(r.buf[r.at : r.at+size])
	r.at += size
	return r.bad
}

// fill reads until n bytes are available.
func (r *Reader) fill(n int) error {
	if r.end-r.at >= n {
		return nil
	}
	if r.at+n > len(r.buf) {
		to := r.buf
		if n > len(to) {
			to = make([]byte, readLarge)
		}
		r.end = copy(to, r.buf[r.at:r.end])
		r.at, r.buf = 0, to
	}
	for r.end-r.at < n {
		k, err := r.r.Read(r.buf[r.end:])
		r.end += k
		switch {
		case r.end-r.at >= n:
		case errors.Is(err, io.EOF) && r.end > r.at:
			return io.ErrUnexpectedEOF
		case err != nil:
			return err
		}
	}
	return nil
}

// unwrap checks a record and returns its text, in place.
func (d *Direction) unwrap(b []byte) ([]byte, error) {
	number := d.number
	if d.aead != nil {
		body := b[recordHead:]
		text, err := d.aead.Open(body[:0], d.next(), body, b[:recordHead])
		if err != nil {
			return nil, fmt.Errorf("%w: record %d was changed, left out, repeated or moved, or has a different key",
				ErrRecord, number)
		}
		return text, nil
	}
	end := len(b) - sumSize
	if Sum(Sum(0, d.next()), b[:end]) != binary.LittleEndian.Uint32(b[end:]) {
		return nil, fmt.Errorf("%w: the checksum of record %d is wrong", ErrRecord, number)
	}
	return b[recordHead:end], nil
}
