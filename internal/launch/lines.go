//go:build unix

package launch

import (
	"bufio"
	"errors"
	"io"
	"sync"
)

// maxLine limits the length of a line. It bounds the memory for a program that writes no line feeds.
const maxLine = 1 << 20

// copyLines copies lines until the end, and completes the last one with a line feed. mu serializes the lines of
// all ranks. copyLines keeps reading after a write error, so that the program does not block.
func copyLines(mu *sync.Mutex, w io.Writer, r io.Reader, prefix string) {
	in := bufio.NewReaderSize(r, 64<<10)
	line := []byte(prefix)
	broken := false
	for {
		part, err := in.ReadSlice('\n')
		line = append(line, part...)
		long := errors.Is(err, bufio.ErrBufferFull)
		if long && len(line) < maxLine {
			continue
		}
		if len(line) > len(prefix) {
			if err != nil {
				line = append(line, '\n')
			}
			if !broken {
				mu.Lock()
				_, werr := w.Write(line)
				mu.Unlock()
				broken = werr != nil
			}
			line = line[:len(prefix)]
		}
		if err != nil && !long {
			return
		}
	}
}
