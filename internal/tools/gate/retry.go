package main

import (
	"context"
	"fmt"
	"regexp"
	"strings"
)

// final matches failures that no second run excuses: races, panics, hangs, leaks and wrong data.
var final = regexp.MustCompile(
	`(?im)DATA RACE|^panic: |^fatal error: |SIGSEGV|AddressSanitizer|test timed out|` +
		`leaks?\b|unexpected goroutines|\bwrong\b|corrupt`)

// heading matches lines with names of tests, which may have any words.
var heading = regexp.MustCompile(`(?m)^\s*(===|---) .*$`)

// again runs the failed tests of a networked package three times more, each alone on the machine. If all these
// runs pass, the failure was chance: a defect to fix first, but none of the change that is checked. It says in
// the text of the failure why a failure stands.
func (g *gate) again(ctx context.Context, r *result) (flaky bool, why string) {
	if g.soaking || r.pkg.kind == pure || len(r.failed) == 0 {
		return false, ""
	}
	for _, name := range append([]string{""}, r.failed...) {
		if bad := final.FindString(heading.ReplaceAllString(r.output[name], "")); bad != "" {
			return false, fmt.Sprintf("not run again: the output has %q\n", bad)
		}
	}
	for i := range 3 {
		for _, name := range r.failed {
			alone := g.execute(ctx, r.pkg, r.race, "^"+name+"$")
			path := g.log(alone, fmt.Sprintf("-again%d-%s", i+1, strings.ReplaceAll(name, "/", "-")))
			if !alone.ok {
				return false, fmt.Sprintf("failed again alone, in run %d of 3; log: %s\n", i+1, path)
			}
		}
	}
	return true, ""
}
