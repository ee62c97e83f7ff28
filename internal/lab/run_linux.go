package lab

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/allcast/allcast/internal/launch"
)

// Run runs a job and returns what the ports counted meanwhile. If the job fails, the ranks' logs
// stay; if ctx ends the job, Run removes them.
func (l *Lab) Run(ctx context.Context, job Job) (*Counters, error) {
	if err := job.Check(); err != nil {
		return nil, err
	}
	logs, err := newLogs(job.Stdout, job.Stderr)
	if err != nil {
		return nil, err
	}
	l.state.Logs = logs.dir
	if err := l.state.write(); err != nil {
		return nil, errors.Join(err, logs.remove())
	}
	before, err := l.Counters()
	if err != nil {
		return nil, errors.Join(err, logs.remove())
	}
	tails := l.tails()
	err = launch.Run(ctx, launch.Config{
		Ranks:   l.Plan.Graph.Hosts,
		Command: slices.Concat(job.Self, []string{"enter", l.Plan.Config.Name, "--"}, job.Command),
		Prefix:  logPrefix,
		Stdout:  &stream{logs, false}, Stderr: &stream{logs, true},
		Failed: func(e *launch.RankError) { job.Log("%v: ending the other ranks", e) },
	})
	logs.close()
	for _, t := range tails {
		if err := t.pass(job.Stderr, logs.dir); err != nil {
			job.Log("the log of the aggregator in %s: %v", t.name, err)
		}
	}
	after, countErr := l.Counters()
	if err == nil {
		err = errors.Join(countErr, l.holderMessages())
	}
	if err != nil && ctx.Err() == nil {
		job.Log("the ranks' output is in %s", logs.dir)
		l.state.Logs = ""
		err = errors.Join(err, l.state.write())
	} else {
		err = errors.Join(err, logs.remove())
	}
	if countErr != nil {
		return nil, err
	}
	return after.Sub(before), err
}

// holderMessages returns the holder's messages.
func (l *Lab) holderMessages() error {
	text, err := os.ReadFile(logPath(l.Plan.Config.Name))
	if err != nil || len(text) == 0 {
		return err
	}
	lines := bytes.Split(bytes.TrimSpace(text), []byte("\n"))
	more := ""
	if len(lines) > 1 {
		more = fmt.Sprintf(" (and %d more such)", len(lines)-1)
	}
	return fmt.Errorf("%s%s: the groups with trees are in ALLCAST_GROUPS and ALLCAST_COMM_GROUPS", lines[0], more)
}
