package clustertest

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/allcast/allcast/internal/step"
	"github.com/allcast/allcast/internal/wire"
)

// A Command is one command of a script and its arguments.
type Command struct {
	T *testing.T
	*datadriven.TestData
}

// RunScripts runs the transcripts that match a pattern. start returns what executes the commands of
// one of them. The flag -rewrite writes the answers anew.
func RunScripts(t *testing.T, pattern string, start func() func(Command) string) {
	t.Helper()
	files, err := filepath.Glob(pattern)
	if err != nil || len(files) == 0 {
		t.Fatalf("no transcripts %s: %v", pattern, err)
	}
	for _, path := range files {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txt"), func(t *testing.T) {
			run := start()
			datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
				t.Helper()
				return run(Command{t, d})
			})
		})
	}
}

// Unknown fails the test because the command is unknown.
func (d Command) Unknown() string {
	d.Fatalf(d.T, "unknown command %s", d.Cmd)
	return ""
}

// Int is a number, or its default.
func (d Command) Int(key string, otherwise int) int {
	d.MaybeScanArgs(d.T, key, &otherwise)
	return otherwise
}

// Text is a word, or its default.
func (d Command) Text(key, otherwise string) string {
	d.MaybeScanArgs(d.T, key, &otherwise)
	return otherwise
}

// Span is a duration, or its default.
func (d Command) Span(key string, otherwise step.Time) step.Time {
	s := d.Text(key, "")
	if s == "" {
		return otherwise
	}
	span, err := time.ParseDuration(s)
	if err != nil {
		d.Fatalf(d.T, "%s: %v", key, err)
	}
	return step.Time(span)
}

// Ranges are PSNs: "3", "3-5", or a list of such in parentheses.
func (d Command) Ranges(key string) (rs []wire.Range) {
	arg, ok := d.Arg(key)
	if !ok {
		return nil
	}
	for _, v := range arg.Vals {
		var first, last uint32
		if n, err := fmt.Sscanf(v, "%d-%d", &first, &last); n == 1 {
			last = first
		} else if err != nil {
			d.Fatalf(d.T, "%s: %q is no range", key, v)
		}
		rs = append(rs, wire.Range{PSN: first, N: last - first + 1})
	}
	return rs
}

// ShowTime is a time as transcripts write it.
func ShowTime(t step.Time) string {
	if t == step.Never {
		return "never"
	}
	return time.Duration(t).String()
}
