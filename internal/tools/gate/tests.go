package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// A result is what the tests of one package did.
type result struct {
	pkg             *pkg
	race            bool
	ok              bool
	passed, skipped int
	failed          []string          // top-level tests
	open            map[string]bool   // top-level tests that have begun and not ended
	reasons         map[string]string // of skipped tests
	output          map[string]string // by top-level test
	all             string
	took            time.Duration
}

// event is a line of test2json.
type event struct{ Action, Test, Output string }

// hang is the time after which the tests of a package count as hung. None takes more than a fifth of it on two idle
// cores, so that a slow machine does not decide.
const hang = 10 * time.Minute

// execute runs the test binary of a package, or those of its tests that match.
func (g *gate) execute(ctx context.Context, p *pkg, race bool, match string) *result {
	limit := hang
	if g.soaking {
		limit = 30 * time.Minute
	}
	args := []string{"-test.v=test2json", "-test.paniconexit0", "-test.timeout=" + limit.String()}
	if match != "" {
		args = append(args, "-test.run="+match)
	}
	ctx, cancel := context.WithTimeout(ctx, limit+30*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, g.binary(p, race), args...)
	cmd.Dir, cmd.Env = p.dir, append(slices.Clip(g.env), "PWD="+p.dir)
	prepare(cmd)
	// test2json does not start the tests, because they would inherit that it ignores interrupts.
	convert := exec.CommandContext(ctx, "go", "tool", "test2json", "-t")
	text, printed := io.Pipe()
	convert.Stdin, cmd.Stdout, cmd.Stderr = text, printed, printed
	r := newResult(p, race)
	begin := time.Now()
	err := r.convert(convert, func() error {
		defer func() { _ = printed.Close() }()
		return cmd.Run()
	})
	if err != nil {
		r.all += "\n" + err.Error() + "\n"
	}
	r.took = time.Since(begin)
	r.ok = err == nil && len(r.failed) == 0
	return r
}

func newResult(p *pkg, race bool) *result {
	return &result{
		pkg: p, race: race, open: map[string]bool{}, reasons: map[string]string{}, output: map[string]string{},
	}
}

// convert reads what a command makes of the output of the tests that run.
func (r *result) convert(cmd *exec.Cmd, run func() error) error {
	events, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- run() }()
	r.read(events)
	return errors.Join(cmd.Wait(), <-ended)
}

var reason = regexp.MustCompile(`^\s+\S+\.go:\d+: (.*)`)

func (r *result) read(stream io.Reader) {
	var all strings.Builder
	text := map[string]*strings.Builder{}
	last := map[string]string{} // last line with a position, by test
	lines := bufio.NewScanner(stream)
	lines.Buffer(nil, 64<<20)
	for lines.Scan() {
		var e event
		if json.Unmarshal(lines.Bytes(), &e) != nil {
			all.Write(lines.Bytes())
			all.WriteByte('\n')
			continue
		}
		top, _, nested := strings.Cut(e.Test, "/")
		if ended := e.Action == "pass" || e.Action == "fail" || e.Action == "skip"; ended && !nested {
			delete(r.open, top)
		}
		switch e.Action {
		case "run":
			r.open[top] = true
		case "output":
			all.WriteString(e.Output)
			if text[top] == nil {
				text[top] = &strings.Builder{}
			}
			text[top].WriteString(e.Output)
			if m := reason.FindStringSubmatch(e.Output); m != nil {
				last[e.Test] = m[1]
			}
		case "skip":
			// A fuzz target skips inputs that are not meant for it.
			if e.Test != "" && (!nested || !strings.HasPrefix(top, "Fuzz")) {
				r.skipped++
				r.reasons[e.Test] = last[e.Test]
			}
		case "pass":
			if e.Test != "" && !nested {
				r.passed++
			}
		case "fail":
			if e.Test != "" && !nested {
				r.failed = append(r.failed, top)
			}
		}
	}
	_, _ = io.Copy(io.Discard, stream) // after an overlong line
	for name, b := range text {
		r.output[name] = b.String()
	}
	r.all = all.String()
}

// log writes the whole output of a package, and returns the path.
func (g *gate) log(r *result, suffix string) string {
	name := strings.ReplaceAll(r.pkg.path, "/", "-")
	if name == "" {
		name = "allcast"
	}
	if r.race {
		name += "-race"
	}
	path := filepath.Join(g.logs, name+suffix+".log")
	if err := os.WriteFile(path, []byte(r.all), 0o644); err != nil {
		return err.Error()
	}
	return path
}

// count adds a result to the run, and judges failures.
func (g *gate) count(ctx context.Context, stage string, r *result) {
	g.passed += r.passed
	g.skipped += r.skipped
	for _, why := range r.reasons {
		g.skips[why]++
	}
	path := g.log(r, "")
	if r.ok || ctx.Err() != nil {
		return
	}
	flaky, why := g.again(ctx, r)
	if flaky {
		g.flaky = append(g.flaky, fmt.Sprintf("%s %s: passed 3 times of 3 alone; log: %s",
			r.pkg.name(), strings.Join(r.failed, " "), path))
		g.passed += len(r.failed)
		return
	}
	flags := ""
	if r.race {
		flags = " -race"
	}
	tests, text := r.failed, func(name string) string { return r.output[name] }
	if len(tests) == 0 {
		tests, text = []string{""}, func(string) string { return crash(r.all) }
	}
	for _, name := range tests {
		f := failure{stage: stage + "  " + r.pkg.name(), test: name, log: path, text: text(name) + why}
		f.replay = fmt.Sprintf("RAPID_SEED=%s go test%s -count 1", seedOf(g), flags)
		if name != "" {
			f.replay += " -run '^" + name + "$'"
		}
		f.replay += " " + r.pkg.name()
		g.failures = append(g.failures, f)
	}
}

// crash cuts what a package printed before it crashed.
func crash(all string) string {
	if at := final.FindStringIndex(all); at != nil {
		return all[strings.LastIndexByte(all[:at[0]], '\n')+1:]
	}
	return all
}

// seedOf returns the seed of property tests, which soak chooses.
func seedOf(g *gate) string {
	for _, v := range slices.Backward(g.env) {
		if seed, ok := strings.CutPrefix(v, "RAPID_SEED="); ok {
			return seed
		}
	}
	return settings["RAPID_SEED"]
}
