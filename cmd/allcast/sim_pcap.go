package main

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
)

// pcapFile is a capture that appears under its name only when it is whole: it
// is written beside it and renamed. A nil *pcapFile is no capture at all.
type pcapFile struct {
	path    string
	file    *os.File
	buf     *bufio.Writer
	temp    string // "" when written in place
	err     error  // of the first write that failed
	signals chan os.Signal
}

// createPcap opens the capture; an empty path is none.
func createPcap(path string) (*pcapFile, error) {
	if path == "" {
		return nil, nil //nolint:nilnil // a nil capture is a valid one that records nothing
	}
	p := &pcapFile{path: path}
	info, err := os.Stat(path)
	switch {
	case err == nil && info.IsDir():
		return nil, fmt.Errorf("%s is a directory", path)
	case err == nil && !info.Mode().IsRegular():
		// A pipe to Wireshark, or /dev/null: nothing to rename over.
		p.file, err = os.OpenFile(path, os.O_WRONLY, 0)
	case err == nil:
		// Replace what a symbolic link points to, not the link.
		if p.path, err = filepath.EvalSymlinks(path); err == nil {
			err = p.createTemp(info.Mode().Perm())
		}
	case errors.Is(err, fs.ErrNotExist):
		err = p.createTemp(0o666) // less the umask
	}
	if err != nil {
		return nil, err
	}
	p.buf = bufio.NewWriterSize(p.file, 1<<20)
	p.removeOnSignal()
	return p, nil
}

func (p *pcapFile) createTemp(perm fs.FileMode) (err error) {
	// Not os.CreateTemp, whose files only their owner may read.
	p.temp = fmt.Sprintf("%s.%d.tmp", p.path, os.Getpid())
	p.file, err = os.OpenFile(p.temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, perm)
	return err
}

// Write implements io.Writer and remembers its first error.
func (p *pcapFile) Write(b []byte) (int, error) {
	n, err := p.buf.Write(b)
	if err != nil && p.err == nil {
		p.err = fmt.Errorf("writing the capture: %w", err)
	}
	return n, err
}

// failed returns the first error of a write.
func (p *pcapFile) failed() error {
	if p == nil {
		return nil
	}
	return p.err
}

// commit makes the capture appear.
func (p *pcapFile) commit() error {
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
		return fmt.Errorf("writing the capture: %w", err)
	}
	p.temp = ""
	return nil
}

// discard removes what was not committed; afterwards it does nothing.
func (p *pcapFile) discard() {
	if p == nil || p.file == nil {
		return
	}
	signal.Stop(p.signals)
	close(p.signals)
	_ = p.file.Close() // twice after commit, harmlessly
	if p.temp != "" {
		_ = os.Remove(p.temp)
	}
	p.file = nil
}

// removeOnSignal takes the temporary file away when the user gives up on a long
// run, then lets the signal do what it does.
func (p *pcapFile) removeOnSignal() {
	p.signals = make(chan os.Signal, 1)
	for _, sig := range []os.Signal{os.Interrupt, syscall.SIGTERM} {
		if !signal.Ignored(sig) { // as of a background job: the run goes on
			signal.Notify(p.signals, sig)
		}
	}
	go func(temp string) {
		sig, ok := <-p.signals
		if !ok {
			return
		}
		if temp != "" {
			_ = os.Remove(temp)
		}
		signal.Reset(sig)
		if self, err := os.FindProcess(os.Getpid()); err == nil {
			_ = self.Signal(sig)
		}
	}(p.temp)
}
