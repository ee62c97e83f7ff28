package main

import (
	"context"
	"fmt"
	"maps"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
)

const compileStage = "compile everything"

// together runs the tests of packages on all processors.
func (g *gate) together(name string, list []pkg) stage {
	return stage{name: name, run: func(ctx context.Context) (string, error) {
		results := make(chan *result)
		next := make(chan *pkg)
		var workers sync.WaitGroup
		for range runtime.NumCPU() {
			workers.Go(func() {
				for p := range next {
					results <- g.execute(ctx, p, false, "")
				}
			})
		}
		go func() {
			for i := range list {
				next <- &list[i]
			}
			close(next)
			workers.Wait()
			close(results)
		}()
		var done []*result
		for r := range results {
			done = append(done, r)
			g.count(ctx, name, r)
		}
		return detail(done), ctx.Err()
	}}
}

// alone runs the tests of packages one package at a time.
func (g *gate) alone(name string, list []pkg, race bool) stage {
	return stage{name: name, run: func(ctx context.Context) (string, error) {
		var done []*result
		for i := range list {
			r := g.execute(ctx, &list[i], race, "")
			done = append(done, r)
			g.count(ctx, name, r)
		}
		if race {
			g.raced = done
		}
		return detail(done), ctx.Err()
	}}
}

var withDetector = regexp.MustCompile(`(?i)race detector`)

// undetected runs the tests that the last stage with the race detector skipped because of it.
func (g *gate) undetected(name string) stage {
	return stage{name: name, run: func(ctx context.Context) (string, error) {
		var done []*result
		for _, r := range g.raced {
			names := map[string]bool{}
			for test, why := range r.reasons {
				if withDetector.MatchString(why) {
					top, _, _ := strings.Cut(test, "/")
					names[top] = true
					g.skipped--
					if g.skips[why]--; g.skips[why] == 0 {
						delete(g.skips, why)
					}
				}
			}
			if len(names) == 0 {
				continue
			}
			plain := g.execute(ctx, r.pkg, false, "^("+strings.Join(slices.Sorted(maps.Keys(names)), "|")+")$")
			done = append(done, plain)
			g.count(ctx, name, plain)
		}
		return detail(done), ctx.Err()
	}}
}

// detail sums up a stage in one line.
func detail(results []*result) string {
	tests := 0
	for _, r := range results {
		tests += r.passed + len(r.failed)
	}
	text := fmt.Sprintf("%d tests of %d packages", tests, len(results))
	slices.SortFunc(results, func(a, b *result) int { return int(b.took - a.took) })
	var slow []string
	for _, r := range results[:min(3, len(results))] {
		slow = append(slow, fmt.Sprintf("%s %.0fs", r.pkg.name(), r.took.Seconds()))
	}
	return text + ": " + strings.Join(slow, ", ")
}
