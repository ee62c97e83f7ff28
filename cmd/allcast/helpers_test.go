package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/allcast/allcast/internal/sim"
)

// asCommand makes the test binary the command: ranks that tests start are
// processes of their own, as users' are.
const asCommand = "ALLCAST_TEST_COMMAND"

func TestMain(m *testing.M) {
	if os.Getenv(asCommand) != "" {
		os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
	}
	os.Exit(m.Run())
}

// process prepares the command as a process.
func process(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), exe, args...)
	for _, v := range os.Environ() {
		// A test that runs under a launcher is none of its ranks.
		if name, _, _ := strings.Cut(v, "="); name != "RANK" && name != "WORLD_SIZE" {
			cmd.Env = append(cmd.Env, v)
		}
	}
	// A process with the race detector waits a second for reports when it ends.
	cmd.Env = append(cmd.Env, asCommand+"=1", "GORACE=atexit_sleep_ms=0")
	return cmd
}

// finish runs a process to its end.
func finish(t *testing.T, cmd *exec.Cmd) outcome {
	t.Helper()
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	var exit *exec.ExitError
	if err := cmd.Run(); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return outcome{status: cmd.ProcessState.ExitCode(), stdout: stdout.String(), stderr: stderr.String()}
}

// unset removes a variable for the time of a test.
func unset(t *testing.T, name string) {
	t.Helper()
	t.Setenv(name, "") // it puts the old value back
	if err := os.Unsetenv(name); err != nil {
		t.Fatal(err)
	}
}

// outcome is what a run of the command left behind.
type outcome struct {
	status         int
	stdout, stderr string
	configs        []sim.Config // what the simulator was asked for
}

// execute runs the command with a simulator that only answers.
func execute(t *testing.T, answer func(sim.Config) (*sim.Result, error), args ...string) outcome {
	t.Helper()
	var (
		o              outcome
		stdout, stderr bytes.Buffer
	)
	a := &app{stdout: &stdout, stderr: &stderr, simulate: func(cfg sim.Config) (*sim.Result, error) {
		o.configs = append(o.configs, cfg)
		return answer(cfg)
	}}
	o.status = a.run(args)
	o.stdout, o.stderr = stdout.String(), stderr.String()
	return o
}

// fine is a simulator in which all goes well.
func fine(cfg sim.Config) (*sim.Result, error) {
	return &sim.Result{
		Op: cfg.Op, Algo: cfg.Algo, Nodes: cfg.Topology.Hosts, Topology: cfg.Topology.Name,
		Bytes: cfg.Bytes, Seed: cfg.Seed, Flow: cfg.Flow, Verified: true, MaxCrossings: 1,
	}, nil
}

// objects reads stdout as JSON lines and fails if there is anything else.
func (o outcome) objects(t *testing.T) []map[string]any {
	t.Helper()
	var all []map[string]any
	for line := range strings.Lines(o.stdout) {
		var v map[string]any
		if err := json.Unmarshal([]byte(line), &v); err != nil {
			t.Fatalf("stdout has a line that is no JSON object: %q: %v", line, err)
		}
		all = append(all, v)
	}
	return all
}

// fields splits a command line; none of ours needs quotes.
func fields(s string) []string { return strings.Fields(s) }
