package main

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/allcast/allcast/internal/sim"
)

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
