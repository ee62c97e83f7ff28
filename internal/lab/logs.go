package lab

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
)

// logs keeps what each rank writes, in a file each, until it is known whether anybody
// will want to see it. Of standard output, only rank 0's is passed on.
type logs struct {
	dir            string
	files          map[int]*os.File
	stdout, stderr io.Writer
}

func newLogs(stdout, stderr io.Writer) (*logs, error) {
	dir, err := os.MkdirTemp("", "allcast-lab-logs-")
	if err != nil {
		return nil, fmt.Errorf("a directory for the ranks' logs: %w", err)
	}
	return &logs{dir: dir, files: map[int]*os.File{}, stdout: stdout, stderr: stderr}, nil
}

// stream is one of the two outputs of all ranks. Lines come one at a time (see
// package launch), each begins with its rank.
type stream struct {
	logs   *logs
	stderr bool
}

// logPrefix is what stream takes off again.
func logPrefix(rank int, _ bool) string { return strconv.Itoa(rank) + " " }

func (s *stream) Write(line []byte) (int, error) {
	number, text, _ := bytes.Cut(line, []byte(" "))
	rank, err := strconv.Atoi(string(number))
	if err != nil {
		return 0, fmt.Errorf("a line without its rank: %q", line)
	}
	s.logs.keep(rank, text)
	switch {
	case s.stderr:
		_, err = fmt.Fprintf(s.logs.stderr, "[%d] %s", rank, text)
	case rank == 0:
		_, err = s.logs.stdout.Write(text)
	}
	if err != nil {
		return 0, err
	}
	return len(line), nil
}

// keep writes to a rank's log. A disk that is full is no reason to end a job.
func (l *logs) keep(rank int, text []byte) {
	f, ok := l.files[rank]
	if !ok {
		f, _ = os.Create(filepath.Join(l.dir, fmt.Sprintf("rank%d.log", rank)))
		l.files[rank] = f
	}
	if f != nil {
		_, _ = f.Write(text)
	}
}

func (l *logs) close() {
	for _, f := range l.files {
		if f != nil {
			_ = f.Close()
		}
	}
}

func (l *logs) remove() error { return os.RemoveAll(l.dir) }
