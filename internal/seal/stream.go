package seal

import (
	"crypto/cipher"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math"
)

// A stream is cut into records, little endian:
//
//	length of the text u32, text, trailer
//
// The trailer is GCM's tag, with the length as additional data and the record's number
// as the nonce; or a CRC32C over number, length and text. Either way a record that was
// changed, left out, repeated or moved is found.
const (
	recordHead = 4
	sumSize    = 4
	// MaxRecord is the longest text of a record, and so what a reader holds.
	MaxRecord = 64 << 10
)

// ErrRecord marks a record that is not what was sent.
var ErrRecord = errors.New("damaged record")

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Sum is the CRC32C of what it is called with, one after the other.
func Sum(before uint32, b []byte) uint32 { return crc32.Update(before, castagnoli, b) }

// A Direction protects one direction of a connection. Its two ends are not used at the
// same time; each end of the connection has its own.
type Direction struct {
	aead   cipher.AEAD // nil: checksums
	number uint64
	nonce  [nonceSize]byte
}

// Direction makes the sealed direction of a label. Both ends use the same label; the other
// direction has another.
func (m *Master) Direction(label string) *Direction {
	return &Direction{aead: m.gcm("allcast stream\x00" + label)}
}

// Checked makes a direction that only finds accidents.
func Checked() *Direction { return &Direction{} }

func (d *Direction) trailer() int {
	if d.aead == nil {
		return sumSize
	}
	return TagSize
}

// next numbers a record.
func (d *Direction) next() []byte {
	if d.number == math.MaxUint64 {
		panic("seal: a stream of 2^64 records")
	}
	binary.LittleEndian.PutUint64(d.nonce[:], d.number)
	d.number++
	return d.nonce[:]
}

// Append appends the records of a text to dst. The records are sent in the order in
// which they were made. text may not overlap dst's free memory.
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
	at, end int    // what was read and not looked at
	text    []byte // of the last record, in buf
	bad     error  // it stays
}

// readAhead is what a Reader begins with: many small records come with one call. When a
// record is larger, it takes more: a connection that is read in small portions stalls.
const (
	readAhead = 16 << 10
	readLarge = 4 * (recordHead + MaxRecord + TagSize)
)

// NewReader reads texts from the records of r. After an error of r it can be called
// again, unless it is the end.
func NewReader(d *Direction, r io.Reader) *Reader {
	return &Reader{d: d, r: r, buf: make([]byte, readAhead)}
}

// Read implements io.Reader. io.EOF means an end between two records: whether that is
// the end of the stream too, the text must say.
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

// record takes the next record.
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
	r.text, r.bad = r.d.open(r.buf[r.at : r.at+size])
	r.at += size
	return r.bad
}

// fill reads until n bytes are here.
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

// open checks a record and returns its text, in place.
func (d *Direction) open(b []byte) ([]byte, error) {
	number := d.number
	if d.aead != nil {
		body := b[recordHead:]
		text, err := d.aead.Open(body[:0], d.next(), body, b[:recordHead])
		if err != nil {
			return nil, fmt.Errorf("%w: record %d was changed, left out, repeated or moved, or is a stranger's", ErrRecord, number)
		}
		return text, nil
	}
	end := len(b) - sumSize
	if Sum(Sum(0, d.next()), b[:end]) != binary.LittleEndian.Uint32(b[end:]) {
		return nil, fmt.Errorf("%w: the checksum of record %d is wrong", ErrRecord, number)
	}
	return b[recordHead:end], nil
}
