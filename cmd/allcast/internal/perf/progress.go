package perf

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/allcast/allcast/cmd/allcast/internal/cli"
)

// showProgress returns an environment that shows, below the table, how many of its rows there are, if people read
// stderr. The function removes that line.
func showProgress(e *cli.Env, job *job) (*cli.Env, func()) {
	line := cli.NewProgressLine(e, nil)
	if line == nil {
		return e, func() {}
	}
	p := &progress{line: line, what: job.Op, all: len(job.sizes) * len(job.algos)}
	watched := *e
	watched.Stdout, watched.Stderr = p.above(e.Stdout), p.above(e.Stderr)
	return &watched, line.Clear
}

// progress counts the rows of a table. The launcher's writes do not overlap.
type progress struct {
	line      *cli.ProgressLine
	what      string
	done, all int
}

// above returns a writer that puts output above the line.
func (p *progress) above(out io.Writer) io.Writer { return aboveLine{p, out} }

type aboveLine struct {
	*progress
	out io.Writer
}

func (a aboveLine) Write(b []byte) (int, error) {
	a.line.Clear()
	n, err := a.out.Write(b)
	if first := strings.TrimLeft(string(b), " "); first != "" && first[0] >= '0' && first[0] <= '9' {
		a.done++
	}
	a.line.Update(time.Now(), a.what, float64(a.done)/float64(max(a.all, a.done, 1)),
		fmt.Sprintf("%d of %d measured", a.done, a.all))
	return n, err
}
