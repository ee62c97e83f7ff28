//go:build unix

package launch

import (
	"bytes"
	"io"
	"sync"
)

// maxLine limits the length of a line. It bounds the memory for a program that writes no line feeds.
const maxLine = 1 << 20

// lines passes on the whole lines of one stream of a rank, each with a prefix and by one Write. It never fails: after a
// write error it discards, so that the program does not block.
type lines struct {
	mu     *sync.Mutex // held while a line is written; shared by all ranks
	to     io.Writer
	prefix int    // length of the prefix
	line   []byte // prefix, and the line so far
	broken bool   // a write failed
}

func newLines(mu *sync.Mutex, to io.Writer, prefix string) lines {
	return lines{mu: mu, to: to, prefix: len(prefix), line: []byte(prefix)}
}

// Write implements io.Writer.
func (l *lines) Write(b []byte) (int, error) {
	for part := range bytes.Lines(b) {
		l.line = append(l.line, part...)
		switch {
		case part[len(part)-1] == '\n':
			l.flush()
		case len(l.line) >= maxLine:
			l.end()
		}
	}
	return len(b), nil
}

// end completes a line that has no line feed.
func (l *lines) end() {
	if len(l.line) > l.prefix {
		l.line = append(l.line, '\n')
		l.flush()
	}
}

func (l *lines) flush() {
	if !l.broken {
		l.mu.Lock()
		_, err := l.to.Write(l.line)
		l.mu.Unlock()
		l.broken = err != nil
	}
	l.line = l.line[:l.prefix]
}
