package lab

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// tail is what an aggregator writes to its log while a job runs.
type tail struct {
	name, path string
	from       int64 // length of the log before the job
}

// tails starts to follow the logs of all aggregators.
func (l *Lab) tails() (all []tail) {
	for _, a := range l.Plan.Aggregators {
		t := tail{name: a.Switch.Name, path: l.Plan.logPath(a)}
		if st, err := os.Stat(t.path); err == nil {
			t.from = st.Size()
		}
		all = append(all, t)
	}
	return all
}

// pass writes the new lines to out, each with the name of its switch, and keeps them next to the ranks' logs. Lines
// about the start and the end of jobs are only kept.
func (t tail) pass(out io.Writer, dir string) error {
	f, err := os.Open(t.path)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	text, err := io.ReadAll(io.NewSectionReader(f, t.from, maxTail))
	if err != nil || len(text) == 0 {
		return err
	}
	for line := range strings.Lines(string(text)) {
		if strings.Contains(line, " level=INFO ") {
			continue
		}
		if _, werr := fmt.Fprintf(out, "[%s] %s\n", t.name, strings.TrimSuffix(line, "\n")); werr != nil {
			err = werr
		}
	}
	return errors.Join(err, os.WriteFile(filepath.Join(dir, t.name+".log"), text, 0o644))
}

// maxTail limits how much of a log is passed on.
const maxTail = 16 << 20
