package transfer

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/allcast/allcast/internal/testenv"
)

func init() { testenv.Rapid(0) }

// file returns an entry without data.
func file(path string) entry { return entry{path: path, mode: 0o644} }

// Names that would lead outside the target, or that contradict each other, are refused when they arrive.
func TestHostileManifests(t *testing.T) {
	dir := entry{path: "d", kind: kindDir, mode: 0o755}
	link := func(path, to string) entry { return entry{path: path, kind: kindSymlink, link: to} }
	for name, entries := range map[string][]entry{
		"parent":             {file("../x")},
		"hidden parent":      {dir, file("d/../../x")},
		"absolute":           {file("/etc/x")},
		"empty":              {file("")},
		"dot":                {file(".")},
		"empty component":    {dir, file("d//x")},
		"trailing slash":     {file("x/")},
		"zero byte":          {file("a\x00b")},
		"long name":          {file(strings.Repeat("x", 256))},
		"long path":          {file(strings.Repeat("x/", 2048) + "x")},
		"twice":              {file("x"), file("x")},
		"file as directory":  {file("x"), file("x/y")},
		"link as directory":  {link("x", "d"), file("x/y")},
		"no directory":       {file("d/x")},
		"staging directory":  {file(stagingDir)},
		"staging, upper":     {file(strings.ToUpper(stagingDir))},
		"absolute link":      {link("l", "/etc/passwd")},
		"link outside":       {link("l", "../x")},
		"link above":         {dir, link("d/l", "../../x")},
		"link through link":  {dir, link("d/up", ".."), link("d/out", "up/..")},
		"empty link":         {link("l", "")},
		"hard link forward":  {{path: "h", kind: kindHardLink, first: 1}, file("x")},
		"hard link to a dir": {dir, {path: "h", kind: kindHardLink, first: 0}},
		"hard link to itself": {
			{path: "h", kind: kindHardLink, first: 0},
		},
	} {
		m := &manifest{segment: minSegment, entries: entries}
		if _, err := decodeManifest(m.encode()); err == nil {
			t.Errorf("%s: no error", name)
		} else if name != "long path" && !errors.Is(err, ErrUnsafe) {
			t.Errorf("%s: %v", name, err)
		}
	}
	good := &manifest{segment: minSegment, entries: []entry{
		dir, file("d/..."), file("D"), file("d/x"), file("d/X"), link("d/l", "../d/x"), link("l", "./d//x"),
		file(strings.Repeat("x", 255)),
		{path: "hole", size: 100, extents: []extent{}},
		{path: "sparse", size: 100, extents: []extent{{0, 1}, {50, 50}}},
		{path: "h", kind: kindHardLink, first: 1},
	}}
	got, err := decodeManifest(good.encode())
	if err != nil || !reflect.DeepEqual(got.entries, good.entries) {
		t.Errorf("%v: %+v", err, got)
	}
}

// A short manifest cannot describe more than a receiver has room for.
func TestManifestLimits(t *testing.T) {
	head := func(entries uint64) []byte {
		b := binary.AppendUvarint([]byte(manifestHead), minSegment)
		return binary.AppendUvarint(append(b, 0), entries)
	}
	long := head(maxTexts / 3000) // all repeat one long path
	prefix := strings.Repeat(strings.Repeat("x", 254)+"/", 15)
	for i := range maxTexts / 3000 {
		same := len(prefix)
		name := strconv.Itoa(i)
		if i == 0 {
			same, name = 0, prefix+name
		}
		long = append(appendText(binary.AppendUvarint(append(long, byte(kindFile)), uint64(same)), name), 0, 0, 0, 0)
	}
	if _, err := decodeManifest(long); !errors.Is(err, errTexts) {
		t.Error(err)
	}
	many := append(head(maxEntries+1), make([]byte, maxEntries+1)...)
	if _, err := decodeManifest(many); !errors.Is(err, errShort) {
		t.Error(err)
	}
	cut := append(appendText(append(head(1), byte(kindFile), 0), "x"), 0, 0) // mode and time
	cut = binary.AppendUvarint(binary.AppendUvarint(cut, 1<<40), maxExtents+2)
	if _, err := decodeManifest(append(cut, make([]byte, 3*maxExtents)...)); !errors.Is(err, errShort) {
		t.Error(err)
	}
}

// Links in the target directory are replaced, and never followed.
func TestExistingLinks(t *testing.T) {
	outside := t.TempDir()
	write(t, []byte("safe"), outside, "victim")
	src := filepath.Join(t.TempDir(), "s")
	write(t, []byte("new"), src, "d", "victim")
	write(t, []byte("new"), src, "file")
	for _, link := range []string{"s", "s/d", "s/file", "s/d/victim", stagingDir} {
		dst := t.TempDir()
		name := filepath.Join(dst, link)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		to := outside
		if strings.Contains(link, "i") && link != stagingDir {
			to = filepath.Join(outside, "victim")
		}
		if err := os.Symlink(to, name); err != nil {
			t.Fatal(err)
		}
		var r recvResult
		if link == stagingDir {
			r.res, r.err = Receive(t.Context(), ReceiveOptions{Dir: dst, From: "127.0.0.1:1", Retry: -1})
		} else {
			_, r = one(t, SendOptions{Paths: []string{src}}, ReceiveOptions{Dir: dst, Retry: -1})
		}
		if replaced := to != outside; replaced != (r.err == nil) {
			t.Errorf("%s: %v", link, r.err)
		}
		if r.err == nil {
			wantSame(t, filepath.Join(dst, "s/file"), []byte("new"))
			wantSame(t, filepath.Join(dst, "s/d/victim"), []byte("new"))
		}
		wantSame(t, filepath.Join(outside, "victim"), []byte("safe"))
		if names, err := os.ReadDir(outside); err != nil || len(names) != 1 {
			t.Errorf("%s: %v, %v", link, names, err)
		}
	}
}

// A directory that is in the way of a file is not removed.
func TestDirectoryInTheWay(t *testing.T) {
	src, dst := t.TempDir(), t.TempDir()
	write(t, []byte("precious"), dst, "file", "inside")
	_, r := one(t, SendOptions{Paths: []string{write(t, []byte("new"), src, "file")}}, ReceiveOptions{Dir: dst, Retry: -1})
	if !errors.Is(r.err, ErrUnsafe) {
		t.Error(r.err)
	}
	wantSame(t, filepath.Join(dst, "file", "inside"), []byte("precious"))
}

// The pieces of all segments cover the data of all files, in order, without gaps.
func TestPieces(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := &manifest{segment: minSegment}
		for range rapid.IntRange(0, 30).Draw(t, "files") {
			e := file("x")
			e.size = rapid.Int64Range(0, 3*minSegment).Draw(t, "size")
			if rapid.Bool().Draw(t, "sparse") {
				e.extents = []extent{}
				for at := int64(0); at < e.size; {
					at += rapid.Int64Range(0, minSegment).Draw(t, "hole")
					if n := min(e.size-at, rapid.Int64Range(1, minSegment).Draw(t, "data")); n > 0 {
						e.extents = append(e.extents, extent{at, n})
						at += n
					}
				}
			}
			m.entries = append(m.entries, e)
		}
		if err := m.index(); err != nil {
			t.Fatal(err)
		}
		var want, got []piece
		for i := range m.entries {
			for _, x := range m.entries[i].data() {
				want = append(want, piece{i, x.off, x.n})
			}
		}
		for seg := range m.segments() {
			n := int64(0)
			_ = m.pieces(seg, m.length(seg), func(p piece) error {
				n += p.n
				if last := len(got) - 1; last >= 0 && got[last].entry == p.entry && got[last].off+got[last].n == p.off && n == p.n {
					got[last].n += p.n // continues the last piece of the segment before
				} else {
					got = append(got, p)
				}
				return nil
			})
			if n != m.length(seg) {
				t.Fatalf("segment %d: pieces of %d bytes, want %d", seg, n, m.length(seg))
			}
		}
		// Adjacent extents of one file may have been joined at a segment's start.
		if total(got) != total(want) || len(got) > len(want) {
			t.Fatalf("got %v, want %v", got, want)
		}
	})
}

func total(ps []piece) (n int64) {
	for _, p := range ps {
		n += p.n
	}
	return n
}

func FuzzDecodeManifest(f *testing.F) {
	good := &manifest{segment: minSegment, entries: []entry{
		{path: "d", kind: kindDir, mode: 0o755},
		{path: "d/f", size: 5, mode: 0o600, mtime: -1},
		file("e"),
		{path: "s", size: 100, extents: []extent{{10, 5}, {20, 80}}},
		{path: "t", size: 100, extents: []extent{}},
		{path: "d/l", kind: kindSymlink, link: "../e"},
		{path: "h", kind: kindHardLink, first: 1},
	}}
	f.Add(good.encode())
	f.Add((&manifest{segment: maxSegment, stream: true, entries: []entry{file("stdin")}}).encode())
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := decodeManifest(b)
		if err != nil {
			return
		}
		again, err := decodeManifest(m.encode())
		if err != nil || !reflect.DeepEqual(m, again) {
			t.Fatalf("%v: %+v and %+v", err, m, again)
		}
		for _, e := range m.entries {
			if !fs.ValidPath(strings.ToValidUTF8(e.path, "?")) || !filepath.IsLocal(e.path) {
				t.Fatalf("%q", e.path)
			}
		}
	})
}

func FuzzReadMessage(f *testing.F) {
	f.Add([]byte("\x10\x00\x00\x00{\"kind\":\"ping\"}  "))
	f.Add([]byte("\xff\xff\xff\xff"))
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := readMessage(bytes.NewReader(b))
		if err == nil && (m.Kind == "" || m.Segment < 0 || m.Segment > maxSegments) {
			t.Fatalf("%+v", m)
		}
		if claims, err := unpackClaims(b); err == nil && len(claims)*claimSize != len(b) {
			t.Fatalf("%d claims of %d bytes", len(claims), len(b))
		}
	})
}
