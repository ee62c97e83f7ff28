//go:build unix

package launch

import (
	"bufio"
	"errors"
	"io"
	"sync"
)

// maxLine is where a line without an end is cut: a program that writes megabytes of
// something else must not take our memory.
const maxLine = 1 << 20

// output is where all ranks' lines go, one at a time.
type output struct {
	mu sync.Mutex
}

// copyLines passes lines on until the end; a last one without a line feed gets one.
// It goes on reading when they cannot be written any more, so that the program does
// not hang.
func (o *output) copyLines(w io.Writer, r io.Reader, prefix string) {
	in := bufio.NewReaderSize(r, 64<<10)
	line := []byte(prefix)
	broken := false
	put := func() {
		if !broken {
			o.mu.Lock()
			_, err := w.Write(line)
			o.mu.Unlock()
			broken = err != nil
		}
		line = line[:len(prefix)]
	}
	for {
		part, err := in.ReadSlice('\n')
		line = append(line, part...)
		switch {
		case err == nil:
			put()
		case errors.Is(err, bufio.ErrBufferFull):
			if len(line) >= maxLine {
				line = append(line, '\n')
				put()
			}
		default:
			if len(line) > len(prefix) {
				line = append(line, '\n')
				put()
			}
			return
		}
	}
}
