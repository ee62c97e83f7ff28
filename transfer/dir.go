package transfer

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strings"
	"sync"
	"time"

	"lukechampine.com/blake3"
)

// stagingDir holds unfinished files, below the target directory so that they are on its file system.
const stagingDir = ".allcast-recv"

// Limits of a batch of complete files, which share one flush.
const (
	batchBytes = 256 << 20
	batchFiles = 8192
)

// dirTarget writes below a directory. Files grow in the staging directory. Complete files are flushed in batches and
// then renamed to their places, so that no name ever shows half a file. The staging directory is also the state
// from which a restarted receiver resumes: it hashes what is there, and the sender confirms what is right.
type dirTarget struct {
	root   *os.Root
	stage  *os.Root
	here   *os.File // staging directory
	lock   *os.File
	name   string // identity
	verify bool
	fresh  bool // the staging directory is empty

	m *manifest

	mu     sync.Mutex
	files  []fileState
	stored bitset
	sums   map[int]hash
	batch  []int // complete files that wait to be renamed
	bytes  int64 // of batch
	dirs   map[string]bool

	committing sync.Mutex
}

// fileState is the state of a file entry.
type fileState struct {
	left  int64 // bytes of data that are missing
	where where
	f     *os.File // while users > 0
	users int
}

// where says where the bytes of a file are.
type where uint8

const (
	nowhere where = iota
	inStage
	inPlace
)

// openDir prepares a target directory, and makes it if it does not exist.
func openDir(dir string, verify bool) (_ *dirTarget, err error) {
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInput, err)
	}
	t := &dirTarget{verify: verify, sums: map[int]hash{}, dirs: map[string]bool{".": true}}
	defer func() {
		if err != nil {
			_ = t.close()
		}
	}()
	if t.root, err = os.OpenRoot(dir); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInput, err)
	}
	err = t.root.Mkdir(stagingDir, 0o700)
	t.fresh = err == nil
	info, err := t.root.Lstat(stagingDir)
	switch {
	case err != nil:
		return nil, fmt.Errorf("cannot make %s in %s: %w", stagingDir, dir, err)
	case !info.IsDir():
		return nil, fmt.Errorf("%w: %s/%s is not a directory: remove it", ErrInput, dir, stagingDir)
	case !private(info):
		return nil, fmt.Errorf("%w: %s/%s belongs to another user, or other users can write to it: remove it",
			ErrInput, dir, stagingDir)
	}
	if t.stage, err = t.root.OpenRoot(stagingDir); err != nil {
		return nil, err
	}
	if t.here, err = t.stage.Open("."); err != nil {
		return nil, err
	}
	if t.lock, err = t.stage.OpenFile("lock", os.O_CREATE|os.O_RDWR|noFollow, 0o600); err != nil {
		return nil, err
	}
	if err = lockFile(t.lock); err != nil {
		return nil, fmt.Errorf("%w: another receiver uses %s", ErrInput, dir)
	}
	return t, t.identify()
}

// identify reads or draws the number by which the sender recognizes a restarted receiver.
func (t *dirTarget) identify() error {
	b := make([]byte, 32)
	n, _ := t.lock.ReadAt(b, 0)
	if n < len(b) {
		var id [16]byte
		_, _ = rand.Read(id[:]) // a failure would end the process
		hex.Encode(b, id[:])
		if _, err := t.lock.WriteAt(b, 0); err != nil {
			return err
		}
	}
	t.name = string(b)
	return nil
}

func (t *dirTarget) ordered() bool { return false }
func (t *dirTarget) id() string    { return t.name }

func (t *dirTarget) close() error {
	var errs []error
	for _, f := range []*os.File{t.here, t.lock} {
		if f != nil {
			errs = append(errs, f.Close())
		}
	}
	for _, r := range []*os.Root{t.stage, t.root} {
		if r != nil {
			errs = append(errs, r.Close())
		}
	}
	return errors.Join(errs...)
}

// stageName is the name of an unfinished file. It depends on the path only, so that a restarted receiver finds it.
func stageName(p string) string {
	sum := blake3.Sum256([]byte(p))
	return hex.EncodeToString(sum[:12]) + ".part"
}

func (t *dirTarget) staged(e *entry) string { return stagingDir + "/" + stageName(e.path) }

// realDir reports whether a directory exists and is no symbolic link, and neither are its parents.
func (t *dirTarget) realDir(dir string) bool {
	if ok, known := t.dirs[dir]; known {
		return ok
	}
	ok := t.realDir(path.Dir(dir))
	if ok {
		info, err := t.root.Lstat(dir)
		ok = err == nil && info.IsDir()
	}
	t.dirs[dir] = ok
	return ok
}

// makeDirs makes the directories of the manifest. It never follows a symbolic link.
func (t *dirTarget) makeDirs() error {
	clear(t.dirs)
	t.dirs["."] = true
	for i := range t.m.entries {
		e := &t.m.entries[i]
		if e.kind != kindDir {
			continue
		}
		if err := t.root.Mkdir(e.path, fs.FileMode(e.mode&0o777)|0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
		if !t.realDir(e.path) {
			return fmt.Errorf("%w: %q exists in the target, and is not a directory", ErrUnsafe, e.path)
		}
	}
	return nil
}

// open opens the unfinished file of an entry, which has its final length from the beginning. It replaces anything else
// with that name, such as a link to another file.
func (t *dirTarget) open(e *entry) (*os.File, error) {
	name := stageName(e.path)
	flags := os.O_RDWR | noFollow
	if info, err := t.stage.Lstat(name); err != nil || !ours(info) {
		if err == nil {
			err = t.stage.RemoveAll(name)
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		flags |= os.O_CREATE | os.O_EXCL
	}
	f, err := t.stage.OpenFile(name, flags, 0o600)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && !ours(info) {
		err = fmt.Errorf("%w: %s is not a file, or has another name as well", ErrUnsafe, f.Name())
	}
	if err == nil && info.Size() != e.size && !t.m.stream {
		err = f.Truncate(e.size)
	}
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}

func (t *dirTarget) write(seg int, data []byte, sum hash) error {
	t.mu.Lock()
	twice := t.stored.has(seg)
	t.stored.set(seg)
	if t.verify {
		t.sums[seg] = sum
	}
	t.mu.Unlock()
	if twice {
		return nil
	}
	err := t.m.pieces(seg, int64(len(data)), func(p piece) error {
		err := t.writePiece(p, data[:p.n])
		data = data[p.n:]
		return err
	})
	if err != nil {
		t.mu.Lock()
		t.stored.clear(seg)
		t.mu.Unlock()
	}
	return err
}

// writePiece writes a part of a file. The goroutine that writes the last part completes the file.
func (t *dirTarget) writePiece(p piece, data []byte) (err error) {
	e, s := &t.m.entries[p.entry], &t.files[p.entry]
	t.mu.Lock()
	if s.f == nil {
		if s.f, err = t.open(e); err != nil {
			t.mu.Unlock()
			return err
		}
	}
	s.users++
	f := s.f
	t.mu.Unlock()
	_, err = f.WriteAt(data, p.off)
	t.mu.Lock()
	if err == nil && !t.m.stream {
		s.left -= p.n
	}
	s.users--
	last := s.users == 0
	if last {
		s.f = nil
	}
	complete := err == nil && last && s.left == 0 && !t.m.stream
	t.mu.Unlock()
	switch {
	case complete:
		return t.complete(p.entry, f)
	case last:
		return errors.Join(err, f.Close())
	}
	return err
}

// complete closes a file that has all its data.
func (t *dirTarget) complete(i int, f *os.File) error {
	e := &t.m.entries[i]
	err := f.Chmod(modeOf(e))
	if err == nil && syncEach {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	when := time.Unix(0, e.mtime)
	if err = t.stage.Chtimes(stageName(e.path), when, when); err != nil {
		return err
	}
	t.mu.Lock()
	t.batch = append(t.batch, i)
	t.bytes += e.size
	full := t.bytes >= batchBytes || len(t.batch) >= batchFiles
	t.mu.Unlock()
	if full {
		return t.commit()
	}
	return nil
}

// modeOf returns the permissions of an entry.
func modeOf(e *entry) fs.FileMode {
	mode := fs.FileMode(e.mode & 0o777)
	if e.mode&0o1000 != 0 {
		mode |= fs.ModeSticky
	}
	return mode
}

// commit flushes complete files and moves them to their places.
func (t *dirTarget) commit() error {
	t.committing.Lock()
	defer t.committing.Unlock()
	t.mu.Lock()
	batch := t.batch
	t.batch, t.bytes = nil, 0
	t.mu.Unlock()
	if len(batch) == 0 {
		return nil
	}
	if err := syncAll(t.here); err != nil {
		return err
	}
	for _, i := range batch {
		e := &t.m.entries[i]
		if err := t.rename(e); err != nil {
			return err
		}
	}
	return nil
}

// rename moves an entry from the staging directory to its place. It replaces a file or a link with that name.
func (t *dirTarget) rename(e *entry) error {
	err := t.root.Rename(t.staged(e), e.path)
	if err == nil {
		return nil
	}
	if info, statErr := t.root.Lstat(e.path); statErr == nil && info.IsDir() {
		return fmt.Errorf("%w: %q exists in the target, and is a directory", ErrUnsafe, e.path)
	}
	return err
}

func (t *dirTarget) finish(size int64) error {
	if err := t.missing(); err != nil {
		return err
	}
	if t.m.stream {
		if err := t.finishStream(size); err != nil {
			return err
		}
	}
	if err := t.commit(); err != nil {
		return err
	}
	for i := range t.m.entries {
		if err := t.finishLink(&t.m.entries[i]); err != nil {
			return err
		}
	}
	if t.verify {
		if err := t.reread(size); err != nil {
			return err
		}
	}
	return t.finishDirs()
}

// missing returns an error if data of a file is missing.
func (t *dirTarget) missing() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i := range t.files {
		if s := &t.files[i]; s.left != 0 || s.users != 0 {
			return fmt.Errorf("%q misses %d bytes, although the sender has ended", t.m.entries[i].path, s.left)
		}
	}
	return nil
}

// finishStream completes the file of a pipe, whose length is known only now.
func (t *dirTarget) finishStream(size int64) error {
	e := &t.m.entries[0]
	f, err := t.open(e)
	if err != nil {
		return err
	}
	e.size = size
	if err := f.Truncate(size); err != nil {
		return errors.Join(err, f.Close())
	}
	return t.complete(0, f)
}

// finishLink makes links, once the files are in place.
func (t *dirTarget) finishLink(e *entry) error {
	if e.kind != kindSymlink && e.kind != kindHardLink {
		return nil
	}
	name := stageName(e.path)
	if err := t.stage.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	var err error
	if e.kind == kindSymlink {
		if err = t.stage.Symlink(e.link, name); err == nil {
			linkTime(t.here, name, time.Unix(0, e.mtime))
		}
	} else {
		err = t.root.Link(t.m.entries[e.first].path, t.staged(e))
	}
	if err != nil {
		return err
	}
	return t.rename(e)
}

// finishDirs sets the modes and times of directories, flushes them, and removes the staging directory.
func (t *dirTarget) finishDirs() error {
	if err := t.root.RemoveAll(stagingDir); err != nil {
		return err
	}
	for i := len(t.m.entries) - 1; i >= 0; i-- {
		e := &t.m.entries[i]
		if e.kind != kindDir {
			continue
		}
		when := time.Unix(0, e.mtime)
		if err := t.root.Chtimes(e.path, when, when); err != nil {
			return err
		}
		f, err := t.root.Open(e.path)
		if err != nil {
			return err
		}
		if err := errors.Join(f.Chmod(modeOf(e)), syncDir(f), f.Close()); err != nil {
			return err
		}
	}
	f, err := t.root.Open(".")
	if err != nil {
		return err
	}
	return errors.Join(syncDir(f), f.Close())
}

// reread compares what is on disk with the hashes of the sender.
func (t *dirTarget) reread(size int64) error {
	if err := syncAll(t.here); err != nil {
		return err
	}
	buf := make([]byte, t.m.segment)
	for seg := range int((size + t.m.segment - 1) / t.m.segment) {
		n := min(t.m.segment, size-int64(seg)*t.m.segment)
		rest := buf[:n]
		var names []string
		err := t.m.pieces(seg, n, func(p piece) error {
			e := &t.m.entries[p.entry]
			names = append(names, e.path)
			f, err := t.root.OpenFile(e.path, os.O_RDONLY|noFollow, 0)
			if err != nil {
				return err
			}
			defer func() { _ = f.Close() }()
			forget(f)
			_, err = f.ReadAt(rest[:p.n], p.off)
			rest = rest[p.n:]
			return err
		})
		if err != nil {
			return err
		}
		if hash(blake3.Sum256(buf[:n])) != t.sums[seg] {
			return fmt.Errorf("%w: one of %q, which differ from what was received",
				ErrVerify, strings.Join(names[:min(3, len(names))], ", "))
		}
	}
	return nil
}
