package main

import (
	"errors"
	"io"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/allcast/allcast/cmd/allcast/internal/cli"
)

func TestMain(m *testing.M) { testscript.Main(m, map[string]func(){"allcast": main}) }

// TestScripts runs testdata/script. Besides the usual commands, scripts have:
//
//	exits STATUS PROGRAM ARGUMENT...  run a program, which must end with this exit status
//	usage TEXT ARGUMENT...            run allcast, which must report a usage error that contains the text
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
			"usage": usage,
			"says":  says,
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

func says(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) != 2 {
		ts.Fatalf("usage: [!] says FILE TEXT")
	}
	if strings.Contains(ts.ReadFile(args[0]), args[1]) == neg {
		ts.Fatalf("%s contains %q: %t", args[0], args[1], neg)
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
