package lab

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
)

// logs keeps the output of each rank in a file of its own, in case the job fails. Only the
// standard output of rank 0 is also passed on.
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

// stream is one of the two outputs of all ranks. Lines arrive one at a time (see package launch),
// and each begins with its rank.
type stream struct {
	logs   *logs
	stderr bool
}

// logPrefix is the prefix of a line, which stream removes.
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

// keep writes to a rank's log, best effort: a full disk must not end a job.
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
