//go:build linux

// Command scale measures how Allcast scales with ranks, chains, cores and sizes, row by row. A row runs
// some commands in rounds and compares their results. Each round runs all commands of the row, so that a
// change of the machine's load affects all alike. Ratios are those of values from the same round.
//
//	go run ./bench/scale -list         lists the rows
//	go run ./bench/scale protected     measures one row
//	go run ./bench/scale               measures all rows
//
// The command needs root for rows that use the lab, and an otherwise idle machine.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"os/signal"
	"slices"
	"syscall"
)

// minRounds is the number of rounds from which a median says something.
const minRounds = 5

// config holds the command line.
type config struct {
	list   bool
	rounds int
	json   bool
	page   string // page whose rows are replaced; empty: none
	rows   []*row
}

func main() {
	log.SetFlags(0)
	cfg, err := parse(os.Args[1:], os.Stderr)
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err != nil {
		log.Fatal(err)
	}
	if cfg.list {
		list(os.Stdout, cfg.rows)
		return
	}
	// The first signal starts the cleanup, and later signals must not interrupt it.
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	if err := run(ctx, cfg); err != nil {
		log.Fatal(err)
	}
}

func parse(args []string, out io.Writer) (*config, error) {
	cfg := &config{}
	f := flag.NewFlagSet("scale", flag.ContinueOnError)
	f.SetOutput(out)
	f.BoolVar(&cfg.list, "list", false, "list the rows with their commands and what is wanted, and measure nothing")
	f.IntVar(&cfg.rounds, "rounds", minRounds, "number of rounds; each runs all commands of a row")
	f.BoolVar(&cfg.json, "json", false, "print one JSON object per figure instead of text")
	f.StringVar(&cfg.page, "markdown", "", "also replace these rows in a page, such as docs/benchmarks.md")
	f.Usage = func() {
		_, _ = fmt.Fprintln(out, "Usage: scale [flags] [row ...]\n\nWithout rows, scale measures all.\n\nFlags:")
		f.PrintDefaults()
	}
	if err := f.Parse(args); err != nil {
		return nil, err
	}
	if cfg.rounds < 1 {
		return nil, fmt.Errorf("-rounds %d: want 1 or more", cfg.rounds)
	}
	if f.NArg() == 0 {
		cfg.rows = rows
	}
	for _, name := range f.Args() {
		i := slices.IndexFunc(rows, func(r *row) bool { return r.name == name })
		if i < 0 {
			return nil, fmt.Errorf("there is no row %q: -list shows all rows", name)
		}
		cfg.rows = append(cfg.rows, rows[i])
	}
	return cfg, nil
}

func list(out io.Writer, rows []*row) {
	for _, r := range rows {
		_, _ = fmt.Fprintf(out, "%s: %s\n", r.name, r.about)
		for _, c := range r.runs {
			_, _ = fmt.Fprintf(out, "    %s\n", c.line)
		}
		for _, f := range r.figures {
			if wanted := f.wanted(); wanted != "" {
				_, _ = fmt.Fprintf(out, "    wanted: %s: %s %s\n", f.name, wanted, f.unit)
			}
		}
	}
}
