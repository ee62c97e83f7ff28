package transfer

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"runtime"
	"sync"
	"time"

	"lukechampine.com/blake3"
)

// prepare looks for data from an earlier attempt, and for files of an earlier transfer.
func (t *dirTarget) prepare(m *manifest) ([]claim, error) {
	t.m = m
	t.files = make([]fileState, len(m.entries))
	t.stored, t.batch, t.bytes = nil, nil, 0
	if m.stream {
		if err := t.stage.Remove(stageName(m.entries[0].path)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		return nil, nil
	}
	clear(t.dirs)
	t.dirs["."] = true
	for i := range m.entries {
		if m.entries[i].kind == kindFile {
			t.files[i].where = t.find(&m.entries[i])
		}
	}
	t.fresh = false
	return t.claims()
}

// find returns where the bytes of a file may be.
func (t *dirTarget) find(e *entry) where {
	if !t.fresh {
		info, err := t.stage.Lstat(stageName(e.path))
		if err == nil && ours(info) && info.Size() == e.size && t.makeWritable(e, info) && t.holesAreEmpty(e, inStage) {
			return inStage
		}
		if err == nil {
			_ = t.stage.RemoveAll(stageName(e.path)) // opening it reports an error, if any
		}
	}
	if !t.realDir(path.Dir(e.path)) {
		return nowhere
	}
	if info, err := t.root.Lstat(e.path); err == nil && info.Mode().IsRegular() && info.Size() == e.size &&
		t.holesAreEmpty(e, inPlace) {
		return inPlace
	}
	return nowhere
}

// ours reports whether a staged file is a file with one name, as the receiver makes them.
func ours(info fs.FileInfo) bool {
	_, linked := inodeOf(info)
	return info.Mode().IsRegular() && !linked
}

// makeWritable gives this receiver access to a staged file that already has its final mode.
func (t *dirTarget) makeWritable(e *entry, info fs.FileInfo) bool {
	return info.Mode().Perm()&0o600 == 0o600 || t.stage.Chmod(stageName(e.path), 0o600) == nil
}

func (t *dirTarget) openAt(e *entry, w where) (*os.File, error) {
	if w == inStage {
		return t.stage.OpenFile(stageName(e.path), os.O_RDONLY|noFollow, 0)
	}
	return t.root.OpenFile(e.path, os.O_RDONLY|noFollow, 0)
}

// holesAreEmpty reports whether a file has no data in what the sender says are holes.
func (t *dirTarget) holesAreEmpty(e *entry, w where) bool {
	if e.extents == nil {
		return true
	}
	f, err := t.openAt(e, w)
	if err != nil {
		return false
	}
	defer func() { _ = f.Close() }()
	data, err := extentsOf(f, e.size)
	if err != nil || data == nil {
		return false
	}
	want := e.extents
	for _, x := range data {
		for len(want) > 0 && want[0].off+want[0].n <= x.off {
			want = want[1:]
		}
		// An extent of the file may be cut differently: all of it must lie in adjacent extents of the sender.
		for at := x.off; at < x.off+x.n; {
			if len(want) == 0 || want[0].off > at {
				return false
			}
			if at = want[0].off + want[0].n; at < x.off+x.n {
				want = want[1:]
			}
		}
	}
	return true
}

// claims hashes the segments whose files are all there.
func (t *dirTarget) claims() ([]claim, error) {
	var segs []int
	for seg := range t.m.segments() {
		there := t.m.pieces(seg, t.m.length(seg), func(p piece) error {
			if t.files[p.entry].where == nowhere {
				return fs.ErrNotExist
			}
			return nil
		}) == nil
		if there {
			segs = append(segs, seg)
		}
	}
	all := make([]claim, len(segs))
	next := make(chan int)
	var wg sync.WaitGroup
	for range min(runtime.GOMAXPROCS(0), 4, len(segs)) {
		wg.Go(func() {
			buf := make([]byte, t.m.segment)
			for i := range next {
				all[i] = claim{segs[i], t.hashOnDisk(segs[i], buf)}
			}
		})
	}
	for i := range segs {
		next <- i
	}
	close(next)
	wg.Wait()
	if t.verify {
		for _, c := range all {
			t.sums[c.seg] = c.sum // accepted only if the sender has the same; otherwise write replaces it
		}
	}
	return all, nil
}

// hashOnDisk returns the hash of a segment, or zero if it cannot be read.
func (t *dirTarget) hashOnDisk(seg int, buf []byte) hash {
	n := t.m.length(seg)
	rest := buf[:n]
	err := t.m.pieces(seg, n, func(p piece) error {
		f, err := t.openAt(&t.m.entries[p.entry], t.files[p.entry].where)
		if err != nil {
			return err
		}
		defer func() { _ = f.Close() }()
		_, err = f.ReadAt(rest[:p.n], p.off)
		rest = rest[p.n:]
		return err
	})
	if err != nil {
		return hash{}
	}
	return blake3.Sum256(buf[:n])
}

// accept makes the directories, and completes files that have all their data.
func (t *dirTarget) accept(have bitset) error {
	if err := t.makeDirs(); err != nil {
		return err
	}
	if t.m.stream {
		return nil
	}
	for i := range t.m.entries {
		for _, x := range t.m.entries[i].data() {
			t.files[i].left += x.n
		}
	}
	kept := make([]int64, len(t.files)) // bytes that need not be received
	for seg := range t.m.segments() {
		if !have.has(seg) {
			continue
		}
		t.stored.set(seg)
		_ = t.m.pieces(seg, t.m.length(seg), func(p piece) error {
			t.files[p.entry].left -= p.n
			kept[p.entry] += p.n
			return nil
		})
	}
	if err := t.copyKept(have, kept); err != nil {
		return err
	}
	for i := range t.m.entries {
		if t.m.entries[i].kind == kindFile && t.files[i].left == 0 {
			if err := t.completeKept(i); err != nil {
				return err
			}
		}
	}
	return nil
}

// copyKept copies data from files that are in place, but need other data as well, to the staging directory.
func (t *dirTarget) copyKept(have bitset, kept []int64) error {
	for seg := range t.m.segments() {
		if !have.has(seg) {
			continue
		}
		err := t.m.pieces(seg, t.m.length(seg), func(p piece) error {
			s, e := &t.files[p.entry], &t.m.entries[p.entry]
			if s.where != inPlace || s.left == 0 || kept[p.entry] == 0 {
				return nil
			}
			from, err := t.openAt(e, inPlace)
			if err != nil {
				return err
			}
			defer func() { _ = from.Close() }()
			to, err := t.open(e)
			if err != nil {
				return err
			}
			_, err = io.Copy(io.NewOffsetWriter(to, p.off), io.NewSectionReader(from, p.off, p.n))
			return errors.Join(err, to.Close())
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// completeKept completes a file of which nothing has to be received.
func (t *dirTarget) completeKept(i int) error {
	e := &t.m.entries[i]
	if t.files[i].where == inPlace {
		when := time.Unix(0, e.mtime)
		return errors.Join(t.root.Chmod(e.path, modeOf(e)), t.root.Chtimes(e.path, when, when))
	}
	f, err := t.open(e)
	if err != nil {
		return err
	}
	return t.complete(i, f)
}
