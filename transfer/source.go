package transfer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"

	"lukechampine.com/blake3"
)

// ErrChanged means that a source changed while it was read.
var ErrChanged = errors.New("the source changed while it was read")

// hash is the BLAKE3 hash of a segment.
type hash [32]byte

// source provides segments. Its methods may be called concurrently.
type source interface {
	// read fills buf with a segment and returns its length. A pipe returns io.EOF after its last segment.
	read(seg int, buf []byte) (int, error)
	// release says that no receiver needs the segment any more.
	release(seg int)
}

// fileSource reads files.
type fileSource struct {
	m     *manifest
	files []sourceFile
}

func (s *fileSource) read(seg int, buf []byte) (int, error) {
	n := s.m.length(seg)
	at := int64(0)
	err := s.m.pieces(seg, n, func(p piece) error {
		err := s.readPiece(p, buf[at:at+p.n])
		at += p.n
		return err
	})
	return int(n), err
}

// readPiece reads a part of a file, and checks that the file is the one that the manifest describes.
func (s *fileSource) readPiece(p piece, buf []byte) error {
	from := s.files[p.entry]
	f, err := os.OpenFile(from.name, os.O_RDONLY|noFollow, 0)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	if _, err = f.ReadAt(buf, p.off); err != nil {
		if errors.Is(err, io.EOF) {
			return fmt.Errorf("%w: %s is shorter than before", ErrChanged, from.name)
		}
		return err
	}
	info, err := f.Stat() // after the read, so that an earlier change is seen
	switch {
	case err != nil:
		return err
	case !os.SameFile(info, from.info) || info.Size() != from.info.Size() || !info.ModTime().Equal(from.info.ModTime()):
		return fmt.Errorf("%w: %s", ErrChanged, from.name)
	}
	return nil
}

func (s *fileSource) release(int) {}

// pipeSource reads a pipe, and keeps segments until all receivers have them.
type pipeSource struct {
	r io.Reader

	mu      sync.Mutex
	kept    map[int][]byte
	next    int           // first segment that has not been read
	reading chan struct{} // closed when the goroutine that reads has a segment; nil: none reads
	err     error
}

func (s *pipeSource) read(seg int, buf []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.next <= seg && s.err == nil {
		if other := s.reading; other != nil {
			s.mu.Unlock()
			<-other
			s.mu.Lock()
			continue
		}
		done := make(chan struct{})
		s.reading = done
		s.mu.Unlock() // the pipe may be idle
		b := make([]byte, len(buf))
		n, err := io.ReadFull(s.r, b)
		if errors.Is(err, io.ErrUnexpectedEOF) {
			err = io.EOF
		}
		s.mu.Lock()
		s.reading, s.err = nil, err
		if n > 0 {
			s.kept[s.next] = b[:n]
			s.next++
		}
		close(done)
	}
	if b, ok := s.kept[seg]; ok {
		return copy(buf, b), nil
	}
	if seg < s.next {
		return 0, fmt.Errorf("segment %d of the pipe is no longer there", seg)
	}
	return 0, s.err
}

func (s *pipeSource) release(seg int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.kept, seg)
}

// hashes remembers the hashes of segments. A segment whose hash changes is an error.
type hashes struct {
	src source
	buf []byte // of known

	mu    sync.Mutex
	known map[int]hash

	hashing sync.Mutex // one goroutine at a time reads segments only for their hashes
}

// record stores the hash of a segment that was read.
func (h *hashes) record(seg int, sum hash) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if before, ok := h.known[seg]; ok && before != sum {
		return fmt.Errorf("%w: segment %d has another content than before", ErrChanged, seg)
	}
	h.known[seg] = sum
	return nil
}

func (h *hashes) lookup(seg int) (sum hash, ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	sum, ok = h.known[seg]
	return sum, ok
}

// of returns the hash of a segment, and reads the segment if the hash is not known.
func (h *hashes) of(ctx context.Context, seg int) (hash, error) {
	if sum, ok := h.lookup(seg); ok {
		return sum, nil
	}
	h.hashing.Lock()
	defer h.hashing.Unlock()
	if sum, ok := h.lookup(seg); ok {
		return sum, nil
	}
	if err := ctx.Err(); err != nil {
		return hash{}, context.Cause(ctx)
	}
	n, err := h.src.read(seg, h.buf)
	if err != nil {
		return hash{}, err
	}
	sum := hash(blake3.Sum256(h.buf[:n]))
	return sum, h.record(seg, sum)
}
