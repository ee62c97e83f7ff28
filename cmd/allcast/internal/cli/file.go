package cli

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"sync"
	"syscall"
)

// File is an output file that appears under its name only when it is complete. Until then it has a temporary name in
// the same directory. All methods except Write accept a nil File.
type File struct {
	what    string // description for messages, such as "the capture"
	path    string
	file    *os.File
	buf     *bufio.Writer
	temp    string // temporary name; empty if the file is written in place
	signals chan os.Signal
}

// CreateFile opens a file; what describes it in messages. An empty path gives a nil File.
func CreateFile(path, what string) (*File, error) {
	if path == "" {
		return nil, nil //nolint:nilnil // a nil File is valid and stores nothing
	}
	p := &File{path: path, what: what}
	p.removeOnSignal() // before the file exists, so that no signal can leave it behind
	if err := p.open(); err != nil {
		p.ignoreSignals()
		return nil, p.hideTemp(err)
	}
	p.buf = bufio.NewWriterSize(p.file, 1<<20)
	return p, nil
}

func (p *File) open() error {
	info, err := os.Stat(p.path)
	switch {
	case err == nil && info.IsDir():
		return fmt.Errorf("%s is a directory", p.path)
	case err == nil && !info.Mode().IsRegular():
		// A pipe or a device cannot be replaced by renaming.
		p.file, err = os.OpenFile(p.path, os.O_WRONLY, 0)
	case err == nil:
		// Replace the target of a symbolic link, not the link.
		if p.path, err = filepath.EvalSymlinks(p.path); err == nil {
			err = p.createTemp(info.Mode().Perm())
		}
	case errors.Is(err, fs.ErrNotExist):
		err = p.createTemp(0o666) // minus the umask
	}
	return err
}

func (p *File) createTemp(perm fs.FileMode) (err error) {
	// os.CreateTemp would make the file readable for its owner only.
	p.temp = fmt.Sprintf("%s.%d.tmp", p.path, os.Getpid())
	p.file, err = unfinished.create(p.temp, perm)
	return err
}

// Write implements io.Writer. After a failed write, it returns the same error again.
func (p *File) Write(b []byte) (int, error) {
	n, err := p.buf.Write(b)
	return n, p.explain(err)
}

func (p *File) explain(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("writing %s: %w", p.what, p.hideTemp(err))
}

// hideTemp replaces the temporary name in an error by the name that the user gave.
func (p *File) hideTemp(err error) error {
	if bad, ok := errors.AsType[*fs.PathError](err); ok && bad.Path == p.temp {
		return &fs.PathError{Op: bad.Op, Path: p.path, Err: bad.Err}
	}
	if bad, ok := errors.AsType[*os.LinkError](err); ok {
		return &fs.PathError{Op: bad.Op, Path: p.path, Err: bad.Err}
	}
	return err
}

// Failed returns the error of the first failed write.
func (p *File) Failed() error {
	if p == nil {
		return nil
	}
	_, err := p.Write(nil)
	return err
}

// Commit gives the complete file its name.
func (p *File) Commit() error {
	if p == nil {
		return nil
	}
	defer p.Discard()
	err := cmp.Or(p.buf.Flush(), p.file.Close())
	if err == nil && p.temp != "" {
		err = os.Rename(p.temp, p.path)
	}
	if err == nil {
		unfinished.drop(p.temp)
		p.temp = ""
	}
	return p.explain(err)
}

// Discard removes a file that was not committed. After Commit it does nothing.
func (p *File) Discard() {
	if p == nil || p.file == nil {
		return
	}
	p.ignoreSignals()
	_ = p.file.Close() // Commit may have closed it, which is harmless
	if p.temp != "" {
		_ = os.Remove(p.temp)
		unfinished.drop(p.temp)
	}
	p.file = nil
}

// unfinished holds the temporary files of the process. The first signal handler that runs removes all of them: it also
// ends the process, so another handler might never run.
var unfinished = fileSet{paths: map[string]bool{}}

type fileSet struct {
	mu    sync.Mutex
	paths map[string]bool
}

func (s *fileSet) create(path string, perm fs.FileMode) (*os.File, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, perm)
	if err == nil {
		s.paths[path] = true
	}
	return file, err
}

func (s *fileSet) drop(path string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.paths, path)
}

func (s *fileSet) remove() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for path := range s.paths {
		_ = os.Remove(path)
	}
}

func (p *File) ignoreSignals() {
	signal.Stop(p.signals)
	close(p.signals)
}

// removeOnSignal removes the temporary files when the user interrupts a long run. The signal then has its usual effect.
func (p *File) removeOnSignal() {
	p.signals = make(chan os.Signal, 1)
	for _, sig := range []os.Signal{os.Interrupt, syscall.SIGTERM} {
		if !signal.Ignored(sig) { // a background job may ignore the signal and keep running
			signal.Notify(p.signals, sig)
		}
	}
	go func(signals <-chan os.Signal) {
		sig, ok := <-signals
		if !ok {
			return
		}
		unfinished.remove()
		signal.Reset(sig)
		if self, err := os.FindProcess(os.Getpid()); err == nil {
			_ = self.Signal(sig)
		}
	}(p.signals)
}
