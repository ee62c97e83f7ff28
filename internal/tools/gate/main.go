// Command gate runs the checks of this repository in stages: "test" for newcomers, "check" before a change lands,
// and "soak", which explores. It compiles everything first, runs tests that use the network one package at a time,
// and says at the end what it skipped and what that needs.
//
//	go run ./internal/tools/gate test|check|soak [-only STAGES] [-list]
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Stdout, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "gate:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, out io.Writer, args []string) error {
	flags := flag.NewFlagSet("gate", flag.ContinueOnError)
	only := flags.String("only", "", "run only the stages whose names start with one of these, separated by commas")
	list := flags.Bool("list", false, "list the stages")
	modes := map[string]func(*gate) []stage{"test": newcomer, "check": check, "soak": soak}
	if len(args) == 0 || modes[args[0]] == nil {
		return errors.New("want one of: test, check, soak")
	}
	mode := args[0]
	if err := flags.Parse(args[1:]); err != nil {
		return err
	}
	g, err := newGate(ctx, out, mode)
	if err != nil {
		return err
	}
	defer g.close()
	stages := modes[mode](g)
	if *only != "" {
		stages = slices.DeleteFunc(stages, func(s stage) bool {
			return s.name != compileStage && !slices.ContainsFunc(strings.Split(*only, ","), func(p string) bool {
				return strings.HasPrefix(s.name, p)
			})
		})
	}
	if *list {
		for _, s := range stages {
			g.printf("%s\n", s.name)
		}
		return nil
	}
	for i := range stages {
		if err := g.stage(&stages[i]); err != nil {
			return err
		}
		if stages[i].name == compileStage && len(g.failures) > 0 {
			break
		}
	}
	return g.summary()
}

// A stage is a part of a run that has a line of its own.
type stage struct {
	name string
	// missing says what the stage needs and does not find. The stage is left out then, and the summary says so.
	missing func(ctx context.Context) string
	run     func(ctx context.Context) (detail string, err error)
	// inputs are the paths that decide whether the stage has to run again after it has passed.
	inputs []string
}

// stage runs one stage and prints its line. It returns an error only if the run itself cannot go on.
func (g *gate) stage(s *stage) error {
	if err := g.ctx.Err(); err != nil {
		return err
	}
	g.printf("%-34s", s.name)
	record := ""
	if s.inputs != nil {
		var err error
		if record, err = g.record(s.name, s.inputs); err != nil {
			return err
		}
		if g.mode == "check" && os.Getenv("CHECK") != "all" && exists(record) {
			g.printf("unchanged since it passed (CHECK=all runs it)\n")
			return nil
		}
	}
	begin := time.Now()
	if s.missing != nil {
		if why := s.missing(g.ctx); why != "" {
			g.printf("left out\n")
			g.leftOut = append(g.leftOut, s.name+": "+why)
			return nil
		}
	}
	failed := len(g.failures)
	detail, err := s.run(g.ctx)
	if err != nil {
		g.failures = append(g.failures, failure{stage: s.name, text: err.Error()})
	}
	took := time.Since(begin)
	word := "ok"
	if len(g.failures) > failed {
		word = "FAILED"
	}
	g.printf("%-7s%7s  %s\n", word, took.Round(time.Second), detail)
	for _, f := range g.failures[failed:] {
		g.print(&f)
	}
	if record != "" && word == "ok" {
		return touch(record)
	}
	return nil
}
