package launch

import (
	"bufio"
	"errors"
	"io"
	"sync"
)

// maxLine limits the length of a line. It bounds the memory for a program that writes no line feeds.
const maxLine = 1 << 20

// output serializes the lines of all ranks.
type output struct {
	mu sync.Mutex
}

// copyLines copies lines until the end, and completes the last one with a line feed. It keeps reading
// after a write error, so that the program does not block.
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
