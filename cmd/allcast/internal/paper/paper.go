// Package paper is "allcast paper": every claim, figure and table of the paper next to Allcast.
package paper

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/allcast/allcast/cmd/allcast/internal/cli"
	"github.com/allcast/allcast/internal/figure"
	"github.com/allcast/allcast/internal/lab"
	"github.com/allcast/allcast/internal/paper"
	"github.com/allcast/allcast/internal/paper/reproduce"
)

// defaultOut is the output directory without --out.
const defaultOut = "paper"

// Command is "allcast paper".
type Command struct {
	List  bool     `help:"List all entries, with the recorded verdict, the time they take and what they need."`
	Only  []string `placeholder:"LIST" help:"Entries to run, such as fig11,C9 (default all)."`
	Quick bool     `help:"Smaller networks and fewer seeds: at most 3 minutes instead of 45, on 2 cores."`
	Out   string   `placeholder:"DIR" help:"Output directory; replaces that of an earlier run (default ./paper)."`
	Seed  *uint64  `placeholder:"N" help:"Seed of placements, noise and traffic of other jobs (default 1)."`
	Draw  string   `placeholder:"FILE" help:"Print the plot of a data file, such as paper/fig7/sizes.json, as SVG."`

	// Tests replace these.
	entries    func() []paper.Entry
	usable     func() error // whether labs can be built
	isTerminal func(io.Writer) bool
}

// Help implements kong.HelpProvider.
func (Command) Help() string {
	return `Reproduces the paper: one entry per claim (C1 to C15), figure, table and appendix. The output directory holds
index.html, a page with all results; manifest.json, which says where they come from; and a directory per entry
with its data (JSON and CSV) and plots (SVG). It appears when everything is done. Simulations give the same data
in each run with the same seed. Some entries measure this machine, and some need root, to build labs; others run
without it, and the page says what was left out.

A verdict is hit, miss, or cannot show. The exit status is 1 if a verdict is worse than the one that the registry
records. "cannot show" does not count as worse with --quick, without root, or where an entry left something out.

With --json, there is one object per entry.

Examples:
  allcast paper --list
  allcast paper --quick
  allcast paper --only fig11,C9 --out /tmp/fig11
  allcast paper --draw paper/fig7/sizes.json > sizes.svg`
}

// Run implements the command.
func (c *Command) Run(e *cli.Env) error {
	all := paper.Entries
	if c.entries != nil {
		all = c.entries
	}
	entries, err := reproduce.Select(all(), c.Only)
	if err != nil {
		return cli.Usagef("--only: %v", err)
	}
	switch {
	case c.Draw != "":
		return c.draw(e)
	case c.List:
		if given := c.given("--list", "--only"); given != "" {
			return cli.Usagef("%s has no effect with --list", given)
		}
		return list(e, entries)
	}
	return c.reproduce(e, entries)
}

// given returns the first flag on the command line that is none of these.
func (c *Command) given(except ...string) string {
	for _, f := range []struct {
		name  string
		given bool
	}{
		{"--list", c.List},
		{"--only", c.Only != nil},
		{"--quick", c.Quick},
		{"--out", c.Out != ""},
		{"--seed", c.Seed != nil},
		{"--draw", c.Draw != ""},
	} {
		if f.given && !slices.Contains(except, f.name) {
			return f.name
		}
	}
	return ""
}

// draw prints a plot from its data file.
func (c *Command) draw(e *cli.Env) error {
	if given := c.given("--draw"); given != "" {
		return cli.Usagef("%s has no effect with --draw", given)
	}
	if e.JSON {
		return cli.Usagef("--json has no effect with --draw, which prints SVG")
	}
	file, err := os.Open(c.Draw)
	if err != nil {
		return cli.Usagef("--draw: %v", err)
	}
	defer func() { _ = file.Close() }()
	f, err := figure.Read(file)
	if err != nil {
		return cli.Usagef("--draw %s: %v", c.Draw, err)
	}
	var svg strings.Builder
	if err := figure.Draw(&svg, f); err != nil {
		return cli.Usagef("--draw %s: %v", c.Draw, err)
	}
	return e.Print(svg.String())
}

// reproduce runs entries and writes the output directory.
func (c *Command) reproduce(e *cli.Env, entries []paper.Entry) error {
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("finding the path of this program: %w", err)
	}
	out := cmp.Or(c.Out, defaultOut)
	dir, err := reproduce.CreateDirectory(out)
	if err != nil {
		return cli.Usagef("--out: %v", err)
	}
	defer dir.Discard()
	start := time.Now()
	about := reproduce.About{
		Build: cli.ReadBuild(), Machine: reproduce.ThisMachine(), Seed: 1, Quick: c.Quick, Flags: e.Args,
		Date: start.UTC().Truncate(time.Second),
	}
	if c.Seed != nil {
		about.Seed = *c.Seed
	}
	c.checkLab(&about, entries)

	ctx, stop := cli.UntilSignal()
	defer stop()
	results, err := c.run(ctx, e, self, about, entries)
	if err != nil {
		e.Message("interrupted: %s was not written", out)
		return cmp.Or(cli.Interrupted(ctx), err)
	}
	about.Took = time.Since(start)
	if err := dir.Write(about, results); err != nil {
		return fmt.Errorf("writing %s: %w", out, err)
	}
	return report(e, out, about, results)
}

// checkLab finds out whether labs can be built, if an entry wants to know.
func (c *Command) checkLab(about *reproduce.About, entries []paper.Entry) {
	usable := lab.Usable
	if c.usable != nil {
		usable = c.usable
	}
	err := usable()
	about.Root = err == nil
	var without []string
	for _, e := range entries {
		if e.Needs != "" {
			without = append(without, e.ID)
		}
	}
	if err != nil && without != nil {
		about.LeftOut = []string{fmt.Sprintf("labs, for %s: %v", strings.Join(without, ", "), err)}
	}
}

func (c *Command) run(
	ctx context.Context, e *cli.Env, self string, about reproduce.About, entries []paper.Entry,
) ([]*reproduce.Result, error) {
	line := cli.NewProgressLine(e, c.isTerminal)
	defer line.Clear()
	return reproduce.Run(ctx, reproduce.Options{
		Entries: entries, Seed: about.Seed, Quick: about.Quick, Root: about.Root, Self: self,
		Progress: func(share float64, what string) { line.Update(time.Now(), defaultOut, share, what) },
	})
}
