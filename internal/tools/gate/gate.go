package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"time"
)

// A gate is one run, and what it found.
type gate struct {
	out      io.Writer
	ctx      context.Context //nolint:containedctx // one run, one context
	mode     string
	soaking  bool
	env      []string
	logs     string // directory of the logs, which stays
	work     string // directory of the test binaries
	packages []pkg
	started  time.Time

	raced           []*result // results of the last stage with the race detector
	passed, skipped int
	skips           map[string]int // number of skipped tests by reason
	flaky           []string
	leftOut         []string
	failures        []failure
}

// settings make runs repeatable. Paths are cut from the binaries so that all checkouts share Go's build cache.
var settings = map[string]string{
	"GOFLAGS":    "-buildvcs=false -trimpath",
	"RAPID_SEED": "1",
}

func newGate(ctx context.Context, out io.Writer, mode string) (*gate, error) {
	g := &gate{out: out, ctx: ctx, mode: mode, soaking: mode == "soak", started: time.Now(), skips: map[string]int{}}
	g.env = os.Environ()
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		if mode == "soak" && name == "RAPID_SEED" {
			continue
		}
		g.env = append(g.env, name+"="+settings[name])
	}
	root, err := g.output("go", "list", "-m", "-f", "{{.Dir}}")
	if err != nil {
		return nil, err
	}
	g.logs = logs(strings.TrimSpace(root), mode)
	if err := os.RemoveAll(g.logs); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(g.logs, 0o755); err != nil {
		return nil, err
	}
	if g.work, err = os.MkdirTemp("", "gate"); err != nil {
		return nil, err
	}
	g.packages, err = g.list()
	return g, err
}

func (g *gate) printf(format string, args ...any) { _, _ = fmt.Fprintf(g.out, format, args...) }

func (g *gate) close() { _ = os.RemoveAll(g.work) }

// A failure is a test or a stage that failed.
type failure struct {
	stage, test, replay, log string
	text                     string
}

const longest = 60 // lines of a failure to print; the log has all

func (g *gate) print(f *failure) {
	g.printf("\nFAIL  %s\n", strings.TrimSpace(f.stage+"  "+f.test))
	lines := strings.Split(strings.TrimRight(f.text, "\n"), "\n")
	if n := len(lines); n > longest {
		lines = append(slices.Clone(lines[:longest/2]), fmt.Sprintf("... %d lines ...", n-longest))
		lines = append(lines, strings.Split(strings.TrimRight(f.text, "\n"), "\n")[n-longest/2:]...)
	}
	for _, line := range lines {
		g.printf("    %s\n", line)
	}
	if f.replay != "" {
		g.printf("replay: %s\n", f.replay)
	}
	if f.log != "" {
		g.printf("log:    %s\n", f.log)
	}
}

// summary prints what was skipped or left out, and what failed. It returns an error if anything failed.
func (g *gate) summary() error {
	total := time.Since(g.started).Round(time.Second)
	if g.skipped > 0 {
		g.printf("\nskipped %d tests:\n", g.skipped)
		reasons := slices.SortedFunc(maps.Keys(g.skips), func(a, b string) int { return g.skips[b] - g.skips[a] })
		for _, reason := range reasons {
			g.printf("%6d  %s\n", g.skips[reason], reason)
		}
	}
	for _, text := range g.leftOut {
		g.printf("left out: %s\n", text)
	}
	for _, text := range g.flaky {
		g.printf("FLAKY %s\n", text)
	}
	g.printf("\n%d passed, %d failed, %d skipped\n", g.passed, len(g.failures), g.skipped)
	if len(g.failures) == 0 {
		g.printf("make %s passed in %v\n", g.mode, total)
		return nil
	}
	for _, f := range g.failures {
		g.printf("FAIL  %s\n", strings.TrimSpace(f.stage+"  "+f.test))
	}
	return fmt.Errorf("%d failures after %v; logs are in %s", len(g.failures), total, g.logs)
}
