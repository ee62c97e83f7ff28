//go:build linux

package main

import (
	"fmt"
	"io"
	"os"
)

// archive writes an initramfs: cpio, format "newc"
// (Documentation/driver-api/early-userspace/buffer-format.rst).
type archive struct {
	w   io.Writer
	n   int
	ino int
	err error
}

func (a *archive) write(b []byte) {
	if a.err == nil {
		_, a.err = a.w.Write(b)
		a.n += len(b)
	}
}

func (a *archive) pad() { a.write(make([]byte, -a.n&3)) }

func (a *archive) entry(name string, mode int, content []byte) {
	a.ino++
	a.write(fmt.Appendf(nil, "070701%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%s\x00",
		a.ino, mode, 0, 0, 1, 0, len(content), 0, 0, 0, 0, len(name)+1, 0, name))
	a.pad()
	a.write(content)
	a.pad()
}

func (a *archive) dir(name string) { a.entry(name, 0o040755, nil) }

func (a *archive) text(name, content string) { a.entry(name, 0o100644, []byte(content)) }

// file adds a file of this machine.
func (a *archive) file(name, path string) {
	b, err := os.ReadFile(path)
	if err != nil && a.err == nil {
		a.err = err
	}
	a.entry(name, 0o100755, b)
}

func (a *archive) end() { a.entry("TRAILER!!!", 0, nil) }
