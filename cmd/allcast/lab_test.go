package main

import (
	"strings"
	"testing"
)

// Mistakes are found before anything is built, and without root.
func TestLabUsage(t *testing.T) {
	for args, want := range map[string]string{
		"lab":                                               "needs one of: run, up, down, exec, counters, report, link",
		"lab run --topology ring:3 -- true":                 "unknown kind",
		"lab run --topology star:64 -- true":                "at most 32",
		"lab run --topology star:2":                         "needs a command, as in: allcast lab run",
		"lab run -- true":                                   "--topology",
		"lab run --topology star:2 --mtu 1 -- true":         "MTU",
		"lab run --topology star:2 --rate fast -- true":     "rate",
		"lab run --topology star:2 --loss 2 -- true":        "probability",
		"lab run --topology star:2 --no-such-flag -- true":  "unknown flag --no-such-flag",
		"lab run --topology star:2 -- /no/such/program":     "cannot start",
		"lab up --topology star:2 --name NO":                "name",
		"lab up --topology star:2 --groups 100":             "groups",
		"lab exec":                                          "",
		"lab report /no/such/file --html x.html":            "no such file",
		"lab report":                                        "--html",
		"lab exec host0":                                    "needs a command",
		"lab link leaf0:spine0 sideways":                    "down",
		"lab run --topology star:2 --queue 1 -- allcast --": "queue",
	} {
		if o := command(args); o.status != statusUsage || !strings.Contains(o.stderr, want) {
			t.Errorf("allcast %s: status %d, %q; want %q", args, o.status, o.stderr, want)
		}
	}
}
