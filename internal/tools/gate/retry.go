package main

import (
	"context"
	"fmt"
	"regexp"
	"strings"
)

// final matches failures that no second run excuses, whatever test printed them: races, panics, hangs and leaks.
var final = regexp.MustCompile(`(?m)DATA RACE|race detected|^panic: |^fatal error: |SIGSEGV|AddressSanitizer|` +
	`test timed out|unexpected goroutines`)

// finalOfTest matches what no second run excuses either if a failed test printed it: wrong data and what stays behind.
var finalOfTest = regexp.MustCompile(
	`(?i)\bwrong\b|corrupt|\bleak|left behind|other (bytes|content)|bytes differ|has changed|was written to`)

// complete matches what a test binary prints once all of its tests have run.
var complete = regexp.MustCompile(`(?m)^(PASS|FAIL)$`)

// heading matches lines with names of tests, which may have any words.
var heading = regexp.MustCompile(`(?m)^\s*(===|---) .*$`)

// again runs the failed tests of a networked package three times more, each alone on the machine. If all these
// runs pass, the failure was chance: a defect to fix first, but none of the change that is checked. It says in
// the text of the failure why a failure stands.
func (g *gate) again(ctx context.Context, r *result) (flaky bool, why string) {
	if g.soaking || r.pkg.kind == pure || len(r.failed) == 0 {
		return false, ""
	}
	if len(r.open) > 0 || !complete.MatchString(r.output[""]) {
		return false, "not run again: the tests ended before all had run\n"
	}
	if bad := final.FindString(heading.ReplaceAllString(r.all, "")); bad != "" {
		return false, fmt.Sprintf("not run again: the output of the package has %q\n", bad)
	}
	for _, name := range append([]string{""}, r.failed...) {
		if bad := finalOfTest.FindString(heading.ReplaceAllString(r.output[name], "")); bad != "" {
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
