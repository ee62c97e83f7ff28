package main

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
)

// wholeFile is a file that appears under its name only when it is whole: it is
// written beside it and renamed. A nil *wholeFile is no file at all.
type wholeFile struct {
	what    string // "the capture", for messages
	path    string
	file    *os.File
	buf     *bufio.Writer
	temp    string // "" when written in place
	err     error  // of the first write that failed
	signals chan os.Signal
}

// createPcap opens a capture; an empty path is none.
func createPcap(path string) (*wholeFile, error) { return createWhole(path, "the capture") }

// createPage opens a page, likewise.
func createPage(path string) (*wholeFile, error) { return createWhole(path, "the page") }

func createWhole(path, what string) (*wholeFile, error) {
	if path == "" {
		return nil, nil //nolint:nilnil // a nil file is a valid one that keeps nothing
	}
	p := &wholeFile{path: path, what: what}
	p.removeOnSignal() // first: no moment is left in which a file could stay
	if err := p.open(); err != nil {
		p.ignoreSignals()
		return nil, err
	}
	p.buf = bufio.NewWriterSize(p.file, 1<<20)
	return p, nil
}

func (p *wholeFile) open() error {
	info, err := os.Stat(p.path)
	switch {
	case err == nil && info.IsDir():
		return fmt.Errorf("%s is a directory", p.path)
	case err == nil && !info.Mode().IsRegular():
		// A pipe to Wireshark, or /dev/null: nothing to rename over.
		p.file, err = os.OpenFile(p.path, os.O_WRONLY, 0)
	case err == nil:
		// Replace what a symbolic link points to, not the link.
		if p.path, err = filepath.EvalSymlinks(p.path); err == nil {
			err = p.createTemp(info.Mode().Perm())
		}
	case errors.Is(err, fs.ErrNotExist):
		err = p.createTemp(0o666) // less the umask
	}
	return err
}

func (p *wholeFile) createTemp(perm fs.FileMode) (err error) {
	// Not os.CreateTemp, whose files only their owner may read.
	p.temp = fmt.Sprintf("%s.%d.tmp", p.path, os.Getpid())
	p.file, err = unfinished.create(p.temp, perm)
	return err
}

// Write implements io.Writer and remembers its first error.
func (p *wholeFile) Write(b []byte) (int, error) {
	n, err := p.buf.Write(b)
	if err != nil && p.err == nil {
		p.err = fmt.Errorf("writing %s: %w", p.what, err)
	}
	return n, err
}

// failed returns the first error of a write.
func (p *wholeFile) failed() error {
	if p == nil {
		return nil
	}
	return p.err
}

// commit makes the file appear.
func (p *wholeFile) commit() error {
	if p == nil {
		return nil
	}
	defer p.discard()
	err := p.buf.Flush()
	if cerr := p.file.Close(); err == nil {
		err = cerr
	}
	if err == nil && p.temp != "" {
		err = os.Rename(p.temp, p.path)
	}
	if err != nil {
		return fmt.Errorf("writing %s: %w", p.what, err)
	}
	unfinished.drop(p.temp)
	p.temp = ""
	return nil
}

// discard removes what was not committed; afterwards it does nothing.
func (p *wholeFile) discard() {
	if p == nil || p.file == nil {
		return
	}
	p.ignoreSignals()
	_ = p.file.Close() // twice after commit, harmlessly
	if p.temp != "" {
		_ = os.Remove(p.temp)
		unfinished.drop(p.temp)
	}
	p.file = nil
}

// unfinished are the temporary files of the process. Whoever handles a signal
// removes all of them: it ends the process, and no other handler may get its turn.
var unfinished fileSet

type fileSet struct {
	mu    sync.Mutex
	paths []string
}

func (s *fileSet) create(path string, perm fs.FileMode) (*os.File, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, perm)
	if err == nil {
		s.paths = append(s.paths, path)
	}
	return file, err
}

func (s *fileSet) drop(path string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.paths = slices.DeleteFunc(s.paths, func(p string) bool { return p == path })
}

func (s *fileSet) remove() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, path := range s.paths {
		_ = os.Remove(path)
	}
}

func (p *wholeFile) ignoreSignals() {
	signal.Stop(p.signals)
	close(p.signals)
}

// removeOnSignal takes temporary files away when the user gives up on a long
// run, then lets the signal do what it does.
func (p *wholeFile) removeOnSignal() {
	p.signals = make(chan os.Signal, 1)
	for _, sig := range []os.Signal{os.Interrupt, syscall.SIGTERM} {
		if !signal.Ignored(sig) { // as of a background job: the run goes on
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
