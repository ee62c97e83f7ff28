package main

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/allcast/allcast/cmd/allcast/internal/cli"
	"github.com/allcast/allcast/cmd/allcast/internal/clitest"
)

func TestMain(m *testing.M) { testscript.Main(m, map[string]func(){"allcast": main}) }

// TestScripts runs testdata/script. Besides the usual commands, scripts have:
//
//	exits STATUS PROGRAM ARGUMENT...  run a program, which must end with this exit status
//	usage TEXT ARGUMENT...            run allcast, which must report a usage error that contains the text
//	documented SECTION ARGUMENT...    run allcast --json, which must print what this section of docs/json.md says;
//	                                  several sections, separated by "|", for several kinds of objects
//	says FILE TEXT                    the file, or stdout or stderr, must contain the text; ! says for the opposite
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script",
		Setup: func(env *testscript.Env) error {
			// With the race detector, a process would wait one second for reports when it ends.
			env.Setenv("GORACE", "atexit_sleep_ms=0")
			return nil
		},
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			"exits": func(ts *testscript.TestScript, _ bool, args []string) {
				if len(args) < 2 {
					ts.Fatalf("usage: exits STATUS PROGRAM ARGUMENT...")
				}
				exits(ts, args[0], args[1], args[2:]...)
			},
			"documented": documented,
			"usage":      usage,
			"says":       says,
		},
		RequireExplicitExec: true,
	})
}

func exits(ts *testscript.TestScript, want, program string, args ...string) {
	var exit *exec.ExitError
	status := 0
	if err := ts.Exec(program, args...); errors.As(err, &exit) {
		status = exit.ExitCode()
	} else {
		ts.Check(err)
	}
	if strconv.Itoa(status) != want {
		ts.Fatalf("exit status %d, want %s", status, want)
	}
}

func usage(ts *testscript.TestScript, _ bool, args []string) {
	if len(args) < 1 {
		ts.Fatalf("usage: usage TEXT ARGUMENT...")
	}
	exits(ts, "2", "allcast", args[1:]...)
	if out := ts.ReadFile("stdout"); out != "" {
		ts.Fatalf("a usage error, and output: %q", out)
	}
	if msg := ts.ReadFile("stderr"); !strings.HasPrefix(msg, "allcast: ") || !strings.Contains(msg, args[0]) {
		ts.Fatalf("the message does not begin with \"allcast: \" and contain %q", args[0])
	}
}

func documented(ts *testscript.TestScript, _ bool, args []string) {
	if len(args) < 2 {
		ts.Fatalf("usage: documented SECTION ARGUMENT...")
	}
	exits(ts, "0", "allcast", append(args[1:], "--json")...)
	seen := map[string]bool{}
	for line := range strings.Lines(ts.ReadFile("stdout")) {
		var object map[string]any
		ts.Check(json.Unmarshal([]byte(line), &object))
		var errs []error
		for name := range strings.SplitSeq(args[0], "|") {
			err := clitest.CheckDocumented(name, object)
			if err == nil {
				seen[name], errs = true, nil
				break
			}
			errs = append(errs, err)
		}
		ts.Check(errors.Join(errs...))
	}
	for name := range strings.SplitSeq(args[0], "|") {
		if !seen[name] {
			ts.Fatalf("no object of section %q", name)
		}
	}
}

func says(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) != 2 {
		ts.Fatalf("usage: [!] says FILE TEXT")
	}
	if strings.Contains(ts.ReadFile(args[0]), args[1]) == neg {
		ts.Fatalf("%s contains %q: %t", args[0], args[1], neg)
	}
}

// A test checks the objects of every section of docs/json.md.
func TestSections(t *testing.T) {
	text, err := os.ReadFile("testdata/script/json.txtar")
	if err != nil {
		t.Fatal(err)
	}
	script := string(text)
	elsewhere := []string{ // tests of the subcommands' packages
		"lab", "inspect", "inspect: silent", "inspect: diagnosis", "aggregator: listening", "aggregator: stopped",
	}
	sections, err := clitest.Sections()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range sections {
		quoted := regexp.MustCompile(`(?m)^documented (?:'(?:[^']*\|)?)?` + regexp.QuoteMeta(name) + `['| ]`)
		if !quoted.MatchString(script) && !slices.Contains(elsewhere, name) {
			t.Errorf("no test compares the section %q of docs/json.md with real output", name)
		}
	}
}

// A result that cannot be written is a failure.
func TestClosedPipe(t *testing.T) {
	for _, args := range []string{
		"version", "model psn", "model traffic --topology star:8", "model speedup", "doctor",
		"sim broadcast --topology star:2",
	} {
		for _, args := range []string{args, args + " --json"} {
			r, w := io.Pipe()
			_ = r.Close()
			if status := cli.Run(&commands{}, strings.Fields(args), w, io.Discard); status != cli.StatusFailed {
				t.Errorf("allcast %s to a closed pipe: status %d, want %d", args, status, cli.StatusFailed)
			}
		}
	}
}
