package transfer

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
)

// sourceFile is where the data of an entry comes from.
type sourceFile struct {
	name string // path in the file system of the sender
	info fs.FileInfo
}

// walker collects the entries of the sources.
type walker struct {
	include, exclude []string
	entries          []entry
	files            []sourceFile // one per entry
	inodes           map[inode]int
}

// walk describes the sources. Their base names become names in the target directory. The contents of a source
// whose path is, or ends in, "." go into the target directory itself.
func walk(paths, include, exclude []string) (*walker, error) {
	w := &walker{include: include, exclude: exclude, inodes: map[inode]int{}}
	for _, p := range append(append([]string(nil), include...), exclude...) {
		if _, err := path.Match(p, ""); err != nil {
			return nil, fmt.Errorf("%w: pattern %q: want a pattern such as *.tmp or logs/*", ErrInput, p)
		}
	}
	for _, p := range paths {
		name := filepath.Base(p)
		if strings.HasSuffix(p, "/.") {
			name = "."
		}
		switch name {
		case "..", string(filepath.Separator):
			abs, err := filepath.Abs(p)
			if err != nil {
				return nil, err
			}
			if name = filepath.Base(abs); name == string(filepath.Separator) {
				name = "."
			}
		}
		if _, err := os.Lstat(p); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrInput, err)
		}
		if err := w.add(p, name); err != nil {
			return nil, err
		}
	}
	w.prune()
	return w, nil
}

// add walks one source.
func (w *walker) add(root, name string) error {
	return filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, p)
		if err != nil {
			return err
		}
		to := path.Join(name, filepath.ToSlash(rel))
		if to == "." {
			return nil // the target directory itself
		}
		if matches(w.exclude, to) {
			if d.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		if !d.IsDir() && len(w.include) > 0 && !matches(w.include, to) {
			return nil
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		return w.entry(p, to, info)
	})
}

// matches reports whether a pattern matches the path, or the name if the pattern has no slash.
func matches(patterns []string, p string) bool {
	for _, pattern := range patterns {
		text := p
		if !strings.Contains(pattern, "/") {
			text = path.Base(p)
		}
		if ok, err := path.Match(pattern, text); ok && err == nil {
			return true
		}
	}
	return false
}

func (w *walker) entry(p, to string, info fs.FileInfo) error {
	e := entry{path: to, mode: uint32(info.Mode().Perm()), mtime: info.ModTime().UnixNano()}
	if info.Mode()&fs.ModeSticky != 0 {
		e.mode |= 0o1000
	}
	switch mode := info.Mode(); {
	case mode.IsRegular():
		e.size = info.Size()
		if id, linked := inodeOf(info); linked {
			if first, ok := w.inodes[id]; ok {
				e.kind, e.first, e.size = kindHardLink, first, 0
				break
			}
			w.inodes[id] = len(w.entries)
		}
		var err error
		if e.extents, err = dataExtents(p, info); err != nil {
			return err
		}
	case mode.IsDir():
		e.kind = kindDir
	case mode&fs.ModeSymlink != 0:
		e.kind = kindSymlink
		link, err := os.Readlink(p)
		if err != nil {
			return err
		}
		e.link = link
	default:
		return fmt.Errorf("%w: %w: %q is neither a file, a directory nor a symbolic link (mode %v); "+
			"leave it out (Exclude)", ErrInput, ErrUnsafe, p, mode)
	}
	w.entries = append(w.entries, e)
	w.files = append(w.files, sourceFile{p, info})
	return nil
}

// prune removes directories without entries if only some files are included.
func (w *walker) prune() {
	if len(w.include) == 0 {
		return
	}
	used := map[string]bool{}
	for _, e := range w.entries {
		if e.kind != kindDir {
			for dir := path.Dir(e.path); dir != "." && !used[dir]; dir = path.Dir(dir) {
				used[dir] = true
			}
		}
	}
	number := make([]int, len(w.entries)) // new index of each entry
	kept := 0
	for i, e := range w.entries {
		if e.kind == kindDir && !used[e.path] {
			continue
		}
		if e.kind == kindHardLink {
			e.first = number[e.first]
		}
		number[i] = kept
		w.entries[kept], w.files[kept] = e, w.files[i]
		kept++
	}
	w.entries, w.files = w.entries[:kept], w.files[:kept]
}

// ErrInput marks bad input: a source that does not exist or cannot be sent, or an invalid option.
var ErrInput = errors.New("bad input")

// manifest returns the checked manifest of the entries.
func (w *walker) manifest(segment int64) (*manifest, error) {
	m := &manifest{segment: segment, entries: w.entries}
	if len(m.entries) == 0 {
		return nil, fmt.Errorf("%w: nothing to send", ErrInput)
	}
	if err := m.check(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInput, err)
	}
	if err := m.index(); err != nil {
		return nil, err
	}
	for m.segments() > 1<<17 && m.segment < maxSegment {
		m.segment *= 2
	}
	return m, nil
}
