package transfer

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"path"
	"sort"
	"strings"
)

// kind is the kind of an entry.
type kind uint8

const (
	kindFile kind = iota
	kindDir
	kindSymlink
	kindHardLink
	kinds // number of kinds
)

// permBits are the mode bits that travel. Setuid and setgid do not.
const permBits = 0o1777

// extent is a range of a file that holds data; the rest are holes.
type extent struct{ off, n int64 }

// entry is one name below the target directory.
type entry struct {
	path    string // slash-separated, relative
	kind    kind
	mode    uint32
	mtime   int64 // Unix time in nanoseconds
	size    int64
	link    string   // target of a symbolic link
	first   int      // hard links: index of the entry with the data
	extents []extent // files with holes: the data; nil if all of the file is data
}

// data returns the ranges of the file that hold data.
func (e *entry) data() []extent {
	switch {
	case e.kind != kindFile || e.size == 0:
		return nil
	case e.extents != nil:
		return e.extents
	}
	return []extent{{0, e.size}}
}

// manifest describes what is transferred. The data of all files, in order, forms one logical stream, which is cut
// into segments of equal length. Small files thus share segments.
type manifest struct {
	segment int64 // length of a segment in bytes
	stream  bool  // a pipe: one file, whose length is not known
	entries []entry

	runs []run // of the logical stream; see index
	size int64 // length of the logical stream
}

// run is a range of the logical stream that lies in one extent.
type run struct {
	start int64 // offset in the logical stream
	entry int
	extent
}

// piece is a part of a segment that lies in one file.
type piece struct {
	entry int
	off   int64 // in the file
	n     int64
}

// Limits of a manifest.
const (
	minSegment   = 4 << 10
	maxSegment   = 64 << 20
	maxName      = 255  // bytes of one component
	maxPath      = 4095 // bytes of a path
	maxSegments  = 1 << 24
	maxEntries   = 4 << 20
	maxExtents   = 4 << 20   // of all files
	maxTexts     = 256 << 20 // bytes of all paths and links
	maxManifest  = 512 << 20 // bytes, before compression
	maxZipped    = 256 << 20 // bytes, compressed
	manifestHead = "ALLMAN1\n"
)

var errTexts = fmt.Errorf("manifest: the paths and links have more than %d bytes: send fewer files at once", maxTexts)

// index computes the runs and the size.
func (m *manifest) index() error {
	m.runs, m.size = m.runs[:0], 0
	for i := range m.entries {
		for _, x := range m.entries[i].data() {
			m.runs = append(m.runs, run{m.size, i, x})
			if m.size > math.MaxInt64-x.n {
				return errors.New("manifest: the files are too large")
			}
			m.size += x.n
		}
	}
	if m.segments() > maxSegments {
		return fmt.Errorf("manifest: %d bytes in segments of %d bytes: want at most %d segments",
			m.size, m.segment, maxSegments)
	}
	return nil
}

// segments returns the number of segments. That of a pipe is not known.
func (m *manifest) segments() int { return int((m.size + m.segment - 1) / m.segment) }

// length returns the length of a segment.
func (m *manifest) length(seg int) int64 { return min(m.segment, m.size-int64(seg)*m.segment) }

// pieces calls f for each piece of a segment that has n bytes.
func (m *manifest) pieces(seg int, n int64, f func(piece) error) error {
	at := int64(seg) * m.segment
	if m.stream {
		return f(piece{0, at, n})
	}
	end := at + n
	for i := sort.Search(len(m.runs), func(i int) bool { return m.runs[i].start+m.runs[i].n > at }); at < end; i++ {
		r := m.runs[i]
		skip := at - r.start
		p := piece{r.entry, r.off + skip, min(r.n-skip, end-at)}
		if err := f(p); err != nil {
			return err
		}
		at += p.n
	}
	return nil
}

// encode returns the manifest as bytes. Paths are compressed: most share a prefix with the one before.
func (m *manifest) encode() []byte {
	b := []byte(manifestHead)
	b = binary.AppendUvarint(b, uint64(m.segment))
	var flags uint64
	if m.stream {
		flags = 1
	}
	b = binary.AppendUvarint(b, flags)
	b = binary.AppendUvarint(b, uint64(len(m.entries)))
	before := ""
	for i := range m.entries {
		e := &m.entries[i]
		same := commonPrefix(before, e.path)
		before = e.path
		b = append(b, byte(e.kind))
		b = binary.AppendUvarint(b, uint64(same))
		b = appendText(b, e.path[same:])
		b = binary.AppendUvarint(b, uint64(e.mode))
		b = binary.AppendVarint(b, e.mtime)
		switch e.kind {
		case kindFile:
			b = binary.AppendUvarint(b, uint64(e.size))
			if e.extents == nil {
				b = binary.AppendUvarint(b, 0)
				continue
			}
			b = binary.AppendUvarint(b, uint64(len(e.extents))+1) // a file that is one hole has none
			at := int64(0)
			for _, x := range e.extents {
				b = binary.AppendUvarint(b, uint64(x.off-at))
				b = binary.AppendUvarint(b, uint64(x.n))
				at = x.off + x.n
			}
		case kindSymlink:
			b = appendText(b, e.link)
		case kindHardLink:
			b = binary.AppendUvarint(b, uint64(e.first))
		case kindDir:
		}
	}
	return b
}

func appendText(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

func commonPrefix(a, b string) int {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return n
}

// manifestReader reads numbers and texts. After an error it returns zeros.
type manifestReader struct {
	b       []byte
	err     error
	texts   int // bytes of paths and links that may follow
	extents int // extents that may follow
}

var errShort = errors.New("manifest: ends early, or has a number that is out of range")

func (r *manifestReader) uint(limit uint64) uint64 {
	v, n := binary.Uvarint(r.b)
	if n <= 0 || v > limit {
		r.b, r.err = nil, errShort
		return 0
	}
	r.b = r.b[n:]
	return v
}

func (r *manifestReader) int() int64 {
	v, n := binary.Varint(r.b)
	if n <= 0 {
		r.b, r.err = nil, errShort
		return 0
	}
	r.b = r.b[n:]
	return v
}

func (r *manifestReader) text() string {
	n := r.uint(maxPath)
	if uint64(len(r.b)) < n {
		r.b, r.err = nil, errShort
		return ""
	}
	s := string(r.b[:n])
	r.b = r.b[n:]
	return s
}

// decodeManifest reads a manifest and checks that nothing in it leads outside the target directory.
func decodeManifest(b []byte) (*manifest, error) {
	if !bytes.HasPrefix(b, []byte(manifestHead)) {
		return nil, errors.New("manifest: unknown format")
	}
	r := &manifestReader{b: b[len(manifestHead):], texts: maxTexts, extents: maxExtents}
	m := &manifest{segment: int64(r.uint(maxSegment))}
	m.stream = r.uint(1) == 1
	count := r.uint(min(uint64(len(r.b)), maxEntries))
	m.entries = make([]entry, 0, min(count, 1<<16))
	before := ""
	for range count {
		e := decodeEntry(r, before)
		if r.err != nil {
			return nil, r.err
		}
		if err := checkPath(e.path); err != nil {
			return nil, err // before the next path repeats it
		}
		if r.texts -= len(e.path) + len(e.link); r.texts < 0 {
			return nil, errTexts
		}
		before = e.path
		m.entries = append(m.entries, e)
	}
	switch {
	case r.err != nil:
		return nil, r.err
	case len(r.b) > 0:
		return nil, errors.New("manifest: bytes after its end")
	case m.segment < minSegment:
		return nil, fmt.Errorf("manifest: segments of %d bytes: want at least %d", m.segment, minSegment)
	}
	if err := m.check(); err != nil {
		return nil, err
	}
	return m, m.index()
}

func decodeEntry(r *manifestReader, before string) entry {
	k := kind(r.uint(uint64(kinds) - 1))
	same := r.uint(uint64(len(before)))
	e := entry{path: before[:same] + r.text(), kind: k, mode: uint32(r.uint(permBits)), mtime: r.int()}
	switch k {
	case kindFile:
		e.size = int64(r.uint(math.MaxInt64))
		at := int64(0)
		count := r.uint(uint64(min(len(r.b)/2, r.extents)) + 1)
		if count == 0 {
			break
		}
		e.extents = []extent{}
		r.extents -= int(count - 1)
		for range count - 1 {
			off, n := int64(r.uint(math.MaxInt64)), int64(r.uint(math.MaxInt64))
			if r.err != nil || off > e.size-at || n <= 0 || n > e.size-at-off {
				r.b, r.err = nil, errShort
				return e
			}
			e.extents = append(e.extents, extent{at + off, n})
			at += off + n
		}
	case kindSymlink:
		e.link = r.text()
	case kindHardLink:
		e.first = int(r.uint(math.MaxInt32))
	}
	return e
}

// ErrUnsafe marks a name or a link that leads outside the target directory, or that Allcast does not transfer.
var ErrUnsafe = errors.New("refused")

// check returns an error if an entry could change something outside the target directory, or if entries contradict
// each other.
func (m *manifest) check() error {
	if m.stream && (len(m.entries) != 1 || m.entries[0].kind != kindFile) {
		return errors.New("manifest: a pipe has one file")
	}
	isDir := make(map[string]bool, len(m.entries))
	texts, extents := 0, 0
	for i := range m.entries {
		e := &m.entries[i]
		texts += len(e.path) + len(e.link)
		extents += len(e.extents)
		if err := checkPath(e.path); err != nil {
			return err
		}
		if _, twice := isDir[e.path]; twice {
			return fmt.Errorf("%w: %q occurs twice", ErrUnsafe, e.path)
		}
		if dir := path.Dir(e.path); dir != "." && !isDir[dir] {
			return fmt.Errorf("%w: %q is not in a directory of the transfer", ErrUnsafe, e.path)
		}
		isDir[e.path] = e.kind == kindDir
		switch e.kind {
		case kindSymlink:
			if err := checkLink(e.path, e.link); err != nil {
				return err
			}
		case kindHardLink:
			if e.first >= i || m.entries[e.first].kind != kindFile {
				return fmt.Errorf("%w: hard link %q does not lead to a file before it", ErrUnsafe, e.path)
			}
		case kindFile, kindDir:
		}
	}
	switch {
	case len(m.entries) > maxEntries:
		return fmt.Errorf("manifest: %d files: want at most %d; send an archive", len(m.entries), maxEntries)
	case extents > maxExtents:
		return fmt.Errorf("manifest: %d ranges between holes: want at most %d", extents, maxExtents)
	case texts > maxTexts:
		return errTexts
	}
	return nil
}

// checkPath refuses paths that are not plain names below the target directory.
func checkPath(p string) error {
	switch {
	case p == "":
		return fmt.Errorf("%w: an empty path", ErrUnsafe)
	case len(p) > maxPath:
		return fmt.Errorf("%w: a path of %d bytes, which begins with %.40q", ErrUnsafe, len(p), p)
	case p[0] == '/':
		return fmt.Errorf("%w: %q is an absolute path", ErrUnsafe, p)
	case strings.IndexByte(p, 0) >= 0:
		return fmt.Errorf("%w: %q contains a zero byte", ErrUnsafe, p)
	}
	for name := range strings.SplitSeq(p, "/") {
		switch {
		case name == "" || name == "." || name == "..":
			return fmt.Errorf("%w: %q has a component %q", ErrUnsafe, p, name)
		case len(name) > maxName:
			return fmt.Errorf("%w: a name of %d bytes, which begins with %.40q", ErrUnsafe, len(name), name)
		}
	}
	if top, _, _ := strings.Cut(p, "/"); strings.EqualFold(top, stagingDir) {
		return fmt.Errorf("%w: %q is reserved for unfinished transfers", ErrUnsafe, p)
	}
	return nil
}

// checkLink refuses symbolic links that may lead outside the target directory. ".." is allowed at the beginning only:
// after another component it could continue from the target of another link, not from that component.
func checkLink(p, to string) error {
	switch {
	case to == "" || len(to) > maxPath || strings.IndexByte(to, 0) >= 0:
		return fmt.Errorf("%w: %q is a symbolic link without a valid target", ErrUnsafe, p)
	case to[0] == '/':
		return fmt.Errorf("%w: %q is a symbolic link to an absolute path, %q", ErrUnsafe, p, to)
	}
	depth := strings.Count(p, "/")
	down := false
	for name := range strings.SplitSeq(to, "/") {
		switch {
		case name == ".." && (down || depth == 0):
			return fmt.Errorf("%w: %q is a symbolic link that may lead outside, to %q", ErrUnsafe, p, to)
		case name == "..":
			depth--
		case name != "" && name != ".":
			down = true
		}
	}
	return nil
}
