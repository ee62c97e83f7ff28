package transfer

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
)

// target is where a receiver puts the data.
type target interface {
	// prepare gets the manifest, and returns the segments that may be there already.
	prepare(m *manifest) ([]claim, error)
	// accept gets the claims that the sender confirmed.
	accept(have bitset) error
	// write stores a verified segment. Calls may be concurrent. data belongs to the caller afterwards.
	write(seg int, data []byte, sum hash) error
	// finish puts everything in place. size is the length of the data.
	finish(size int64) error
	// close releases resources, and keeps what a later receiver can use.
	close() error
	// ordered reports whether segments should arrive in order.
	ordered() bool
	// id identifies the target across restarts.
	id() string
}

// claim says that a receiver has a segment with this hash.
type claim struct {
	seg int
	sum hash
}

// ErrVerify means that data on disk differs from the data that was sent.
var ErrVerify = errors.New("data on disk is wrong")

// writerTarget writes one file or pipe to a Writer, in order.
type writerTarget struct {
	w     io.Writer
	name  string
	limit int64 // bytes of segments that may wait for their turn

	mu      sync.Mutex
	next    int
	held    map[int][]byte
	holding int64
	written int64
	err     error
}

func (t *writerTarget) prepare(m *manifest) ([]claim, error) {
	if len(m.entries) != 1 || m.entries[0].kind != kindFile {
		return nil, fmt.Errorf("%w: the sender sends %d entries, and standard output takes one file or a pipe; "+
			"receive into a directory, or send the output of tar", ErrInput, len(m.entries))
	}
	if m.entries[0].extents != nil {
		return nil, fmt.Errorf("%w: the sender sends a file with holes, which only a directory can receive", ErrInput)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	clear(t.held)
	t.holding = 0
	if t.next > 0 {
		return nil, errors.New("the sender was lost, and data that was written to standard output cannot be resumed")
	}
	return nil, nil
}

func (t *writerTarget) accept(bitset) error { return nil }
func (t *writerTarget) ordered() bool       { return true }
func (t *writerTarget) id() string          { return t.name }
func (t *writerTarget) close() error        { return nil }

func (t *writerTarget) write(seg int, data []byte, _ hash) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.err != nil || seg < t.next {
		return t.err
	}
	if seg > t.next {
		if t.held[seg] == nil {
			t.held[seg] = slices.Clone(data)
			t.holding += int64(len(data))
		}
		if t.holding > t.limit {
			t.err = fmt.Errorf("segment %d is missing, and more data waits for it than allowed (MaxLag)", t.next)
		}
		return t.err
	}
	for ok := true; ok; {
		if _, t.err = t.w.Write(data); t.err != nil {
			return t.err
		}
		t.written += int64(len(data))
		t.next++
		if data, ok = t.held[t.next]; ok {
			delete(t.held, t.next)
			t.holding -= int64(len(data))
		}
	}
	return nil
}

func (t *writerTarget) finish(size int64) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.written != size && t.err == nil {
		t.err = fmt.Errorf("%w: wrote %d of %d bytes", ErrVerify, t.written, size)
	}
	return t.err
}
