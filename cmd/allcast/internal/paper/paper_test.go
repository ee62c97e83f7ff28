package paper

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/allcast/allcast/cmd/allcast/internal/cli"
	"github.com/allcast/allcast/cmd/allcast/internal/clitest"
	"github.com/allcast/allcast/internal/figure"
	"github.com/allcast/allcast/internal/paper"
)

// outcome is what the entry fig7 of a test finds. The registry records a hit.
func outcome(v paper.Verdict) *paper.Outcome {
	return &paper.Outcome{
		Verdict: v, Ours: "ours", Command: "allcast model psn",
		Tables: []paper.Table{{Name: "t", Columns: []string{"x"}, Rows: [][]any{{1}}}},
		Figures: []paper.NamedFigure{{Name: "f", Figure: figure.Figure{
			Title: "t", X: figure.Axis{Label: "x"}, Y: figure.Axis{Label: "y"},
			Series: []figure.Series{{Name: "s", Style: figure.Points, Data: []figure.Point{{X: 1, Y: 2}}}},
		}}},
	}
}

// with returns a table whose only entry is fig7.
func with(o *paper.Outcome, usable error, env *paper.Env) *table {
	return &table{Paper: Command{
		usable: func() error { return usable },
		entries: func() []paper.Entry {
			return []paper.Entry{{
				ID: "fig7", Quick: time.Second, Full: time.Minute, Needs: "root, for a lab",
				Run: func(_ context.Context, e *paper.Env) (*paper.Outcome, error) {
					if env != nil {
						env.Seed, env.Quick, env.Root, env.Self = e.Seed, e.Quick, e.Root, e.Self
					}
					e.Progress(0.5, "half")
					return o, nil
				},
			}}
		},
	}}
}

func endless() []paper.Entry {
	return []paper.Entry{{
		ID: "fig7", Quick: time.Second, Full: time.Second, Alone: true,
		Run: func(ctx context.Context, _ *paper.Env) (*paper.Outcome, error) {
			_, _ = os.Stdout.WriteString("running\n")
			<-ctx.Done()
			return nil, ctx.Err()
		},
	}}
}

func TestRun(t *testing.T) {
	out := filepath.Join(t.TempDir(), "out")
	var env paper.Env
	args := strings.Fields("paper --quick --seed 9 --only FIG7 --out")
	o := clitest.Run(with(outcome(paper.Hit), nil, &env), append(args, out)...)
	if o.Status != cli.StatusOK || !strings.Contains(o.Stdout, "fig7  Figure 7") {
		t.Fatalf("%+v", o)
	}
	if env.Seed != 9 || !env.Quick || !env.Root || env.Self == "" {
		t.Errorf("the entry ran with %+v", &env)
	}
	for _, name := range []string{
		"index.html", "manifest.json", "fig7/entry.json", "fig7/t.csv", "fig7/f.json", "fig7/f.svg",
	} {
		if _, err := os.Stat(filepath.Join(out, name)); err != nil {
			t.Error(err)
		}
	}
	drawn := clitest.Run(&table{}, "paper", "--draw", filepath.Join(out, "fig7", "f.json"))
	svg, err := os.ReadFile(filepath.Join(out, "fig7", "f.svg"))
	if err != nil || drawn.Status != cli.StatusOK || drawn.Stdout != string(svg) {
		t.Errorf("--draw gives another picture: %v, %+v", err, drawn)
	}
}

func TestJSON(t *testing.T) {
	out := filepath.Join(t.TempDir(), "out")
	o := clitest.Run(with(outcome(paper.Miss), nil, nil), "paper", "--out", out, "--json")
	lines := o.Objects(t)
	if o.Status != cli.StatusFailed || len(lines) != 1 {
		t.Fatalf("%+v", o)
	}
	for key, want := range map[string]any{
		"schema": 1.0, "id": "fig7", "verdict": "miss", "recorded": "hit", "worse": true, "failed": false, "measured": false,
		"ours": "ours", "where": "Figure 7", "dir": filepath.Join(out, "fig7"),
	} {
		if lines[0][key] != want {
			t.Errorf("%s is %v, want %v", key, lines[0][key], want)
		}
	}
	if !strings.Contains(o.Stderr, "worse than recorded in the registry: fig7") {
		t.Errorf("stderr: %s", o.Stderr)
	}
}

// Without root, or with --quick, an entry that cannot show a claim is no failure.
func TestExitStatus(t *testing.T) {
	noRoot := errors.New("needs root")
	for _, c := range []struct {
		verdict paper.Verdict
		usable  error
		args    string
		want    int
	}{
		{paper.Hit, nil, "", cli.StatusOK},
		{paper.Miss, nil, "", cli.StatusFailed},
		{paper.Miss, noRoot, "--quick", cli.StatusFailed},
		{paper.CannotShow, nil, "", cli.StatusFailed},
		{paper.CannotShow, nil, "--quick", cli.StatusOK},
		{paper.CannotShow, noRoot, "", cli.StatusOK},
	} {
		out := filepath.Join(t.TempDir(), "out")
		args := append([]string{"paper", "--out", out}, strings.Fields(c.args)...)
		o := clitest.Run(with(outcome(c.verdict), c.usable, nil), args...)
		if o.Status != c.want {
			t.Errorf("%v, %v, %q: status %d, want %d", c.verdict, c.usable, c.args, o.Status, c.want)
		}
		if c.usable != nil && !strings.Contains(o.Stderr, "left out: labs, for fig7: needs root") {
			t.Errorf("stderr does not say what was left out: %s", o.Stderr)
		}
	}
}

func TestUsage(t *testing.T) {
	dir := t.TempDir()
	notes := filepath.Join(dir, "notes.json")
	if err := os.WriteFile(notes, []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	for args, want := range map[string]string{
		"--only fig8":                "unknown entry \"fig8\"; valid: fig7",
		"--out " + dir:               "is not empty",
		"--out " + notes:             "is a file",
		"--out " + dir + "/a/b":      "cannot be created",
		"--list --quick":             "--quick has no effect with --list",
		"--draw " + notes:            "the X axis has no label",
		"--draw " + dir + "/none":    "no such file",
		"--draw x --only fig7":       "--only has no effect with --draw",
		"--draw x --json":            "--json has no effect",
		"--seed -1":                  "--seed",
		"--out " + dir + "/o fig7":   "takes flags only",
		"--list --draw " + notes:     "--list has no effect with --draw",
		"--list --seed 3":            "--seed has no effect",
		"--list --out " + dir + "/o": "--out has no effect",
	} {
		o := clitest.Run(with(outcome(paper.Hit), nil, nil), append([]string{"paper"}, strings.Fields(args)...)...)
		if o.Status != cli.StatusUsage || !strings.Contains(o.Stderr, want) || o.Stdout != "" {
			t.Errorf("%s: %+v, want %q", args, o, want)
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
		t.Errorf("%v is left (%v)", left, err)
	}
}

func TestList(t *testing.T) {
	o := clitest.Run(with(nil, nil, nil), "paper", "--list")
	if o.Status != cli.StatusOK || !strings.Contains(o.Stdout, "hit       1s     1m0s  root, for a lab") {
		t.Errorf("%+v", o)
	}
	lines := clitest.Run(&table{}, "paper", "--list", "--json").Objects(t)
	if len(lines) != len(paper.Subjects()) {
		t.Errorf("%d entries, want %d", len(lines), len(paper.Subjects()))
	}
	for _, l := range lines {
		if l["schema"] != 1.0 || l["where"] == "" || l["recorded"] == "" || l["full_seconds"].(float64) <= 0 {
			t.Errorf("%v", l)
		}
	}
}

func TestProgressIsForTerminals(t *testing.T) {
	all := with(outcome(paper.Hit), nil, nil)
	all.Paper.isTerminal = func(io.Writer) bool { return true }
	o := clitest.Run(all, "paper", "--out", filepath.Join(t.TempDir(), "out"))
	if o.Status != cli.StatusOK || strings.Contains(o.Stderr, "\x1b") { // it is too short for a line
		t.Errorf("%+v", o)
	}
}

// Ctrl-C ends the command with the status of an interrupted shell command, and leaves nothing.
func TestInterrupt(t *testing.T) {
	dir := t.TempDir()
	cmd := clitest.Process(t, "paper", "--out", filepath.Join(dir, "out"))
	lines := clitest.StartLines(t, cmd)
	lines.Until(t, "running")
	if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	lines.Rest()
	err := cmd.Wait()
	if status := cmd.ProcessState.ExitCode(); status != 130 {
		t.Errorf("status %d (%v)", status, err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("%v is left (%v)", left, err)
	}
}
