package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

// newcomer is what the README tells a newcomer to run. It needs Go and nothing else.
func newcomer(g *gate) []stage {
	g.env = append(g.env, "CGO_ENABLED=0")
	plain := g.choose(func(p *pkg) bool { return p.kind != processes || slices.Contains(shown, p.path) })
	for _, p := range g.choose(func(p *pkg) bool { return p.kind == processes && !slices.Contains(shown, p.path) }) {
		g.leftOut = append(g.leftOut, p.name())
	}
	g.leftOut = []string{fmt.Sprintf("%d packages that make check runs: %s", len(g.leftOut), strings.Join(g.leftOut, " "))}
	return []stage{
		g.compiles(plain, nil),
		g.together("pure packages", g.choose(pure.is)),
		g.alone("library on loopback", g.choose(library.is), false),
		g.alone("processes", g.choose(func(p *pkg) bool { return slices.Contains(shown, p.path) }), false),
	}
}

// shown are the packages of newcomer that start processes.
var shown = []string{
	"cmd/allcast", "cmd/allcast/internal/cli", "cmd/allcast/internal/demo", "cmd/allcast/internal/run",
	"internal/e2e/observe", "internal/e2e/secure", "internal/e2e/strangers", "internal/launch",
}

// check is the gate. It explores nothing.
func check(g *gate) []stage {
	race := g.choose(func(p *pkg) bool { return p.kind == library || p.path == "internal/place" })
	binding := func(p *pkg) bool { return strings.HasPrefix(p.path, "bindings/") }
	started := g.choose(func(p *pkg) bool { return p.kind == processes && !binding(p) })
	stages := []stage{
		{name: "go.mod and go.sum", run: g.commands("modules", "go mod tidy -diff", "go mod verify")},
		g.compiles(g.packages, race),
		{name: "format, vet, lint", missing: program("make"), run: g.commands("lint", "make --no-print-directory lint")},
		{
			name: "vet for macOS and Windows", missing: program("make"),
			run: g.commands("vet-systems", "make --no-print-directory vet-systems"),
		},
		g.together("pure packages", g.choose(pure.is)),
		g.alone("library with the race detector", race, true),
		g.undetected("library, tests without it"),
		g.alone("processes and networks", started, false),
		{
			name: "C library", missing: program("gcc", "make", "pkg-config"),
			run: g.commands("c", "make --no-print-directory lib build test-c",
				"make --no-print-directory -C examples/c clean all",
				"bin/allcast run -n 3 -- examples/c/broadcast", "bin/allcast run -n 3 -- examples/c/event_loop"),
		},
		{name: "exit statuses", run: g.commands("statuses", "bash .ci/statuses")},
		{
			name: "Python package", missing: g.python(),
			run: g.commands("python", "make --no-print-directory test-python",
				`for example in examples/python/*.py; do PYTHONPATH=bin/python bin/allcast run -n 3 -- python3 "$example"; done`),
		},
	}
	return append(stages, recorded(g)...)
}

// recorded are the stages that need to run only if their inputs have changed.
func recorded(g *gate) []stage {
	return []stage{
		{
			name: "models (spin)", inputs: []string{"formal"}, missing: program("spin", "gcc"),
			run: g.commands("spin", "bash formal/check"),
		},
		{
			name: "MPI programs", inputs: []string{"bindings/mpi", "bindings/c"},
			missing: anyProgram("mpicc.openmpi", "mpicc.mpich"),
			run:     g.commands("mpi", "make --no-print-directory test-mpi"),
		},
		{
			name: "PyTorch backend", inputs: []string{"bindings/python", "bindings/c", "examples/torch", "Makefile"},
			missing: g.installed("install torch", "make --no-print-directory torch"),
			run:     g.commands("torch", "make --no-print-directory test-torch"),
		},
		{
			name: "verbs on Soft-RoCE in QEMU",
			inputs: []string{
				"internal/fabric/verbs", "internal/fabric/fabrictest", "internal/fabric/session", "internal/tools/verbsguest",
			},
			run: g.commands("verbs", "make --no-print-directory test-verbs VERBSFLAGS=-skip"),
		},
	}
}

// soak explores: every seed is new, every test runs with the race detector, and nothing ends the run early.
func soak(g *gate) []stage {
	seed := fmt.Sprint(rand.Uint32())
	g.printf("seed %s: RAPID_SEED and ALLCAST_TEST_SEED of the tests, and the seed of chaos\n", seed)
	g.env = append(g.env, "RAPID_SEED="+seed, "ALLCAST_TEST_SEED="+seed, "ALLCAST_TEST_SOAK=1")
	tests := g.choose(func(p *pkg) bool { return !strings.HasPrefix(p.path, "bindings/") })
	stages := []stage{
		g.compiles(g.packages, tests),
		g.alone("all tests with the race detector", tests, true),
		g.alone("all tests without it", g.packages, false),
		{name: "kernel's datapath", missing: needRoot, run: g.commands("offload", "make --no-print-directory test-offload")},
		{name: "fuzzing", run: g.commands("fuzz", "make --no-print-directory fuzz")},
		{name: "hosts with sshd", missing: needRoot, run: g.commands("network", "make --no-print-directory test-network")},
		{name: "mutants", run: g.commands("mutants", "make --no-print-directory mutants")},
		{name: "Python package", missing: g.python(), run: g.commands("python", "make --no-print-directory test-python")},
	}
	for _, mode := range chaosModes {
		stages = append(stages, stage{
			name: "chaos, " + mode, missing: needRoot, run: g.commands("chaos-"+mode,
				fmt.Sprintf("make --no-print-directory chaos CHAOSFLAGS='-mode %s -time %s -seed %s'", mode, chaosTime(), seed)),
		})
	}
	return append(stages, recorded(g)...)
}

var chaosModes = []string{"faults", "loss", "cancel", "leave", "aggregators"}

// chaosTime is the duration of each mode of chaos, CHAOSTIME or a minute.
func chaosTime() string {
	if t := os.Getenv("CHAOSTIME"); t != "" {
		return t
	}
	return "1m"
}

// compiles is the stage that builds all test binaries and the command.
func (g *gate) compiles(plain, race []pkg) stage {
	return stage{name: compileStage, run: func(context.Context) (string, error) {
		if _, err := g.output("go", "build", "./..."); err != nil {
			return "", err
		}
		if err := g.compile(plain, false); err != nil {
			return "", err
		}
		return fmt.Sprintf("%d test binaries", len(plain)+len(race)), g.compile(race, true)
	}}
}

func (g *gate) python() func(context.Context) string {
	return g.installed("install python tools", "make --no-print-directory python-tools")
}

func anyProgram(names ...string) func(context.Context) string {
	return func(ctx context.Context) string {
		for _, name := range names {
			if program(name)(ctx) == "" {
				return ""
			}
		}
		return "none of " + strings.Join(names, ", ") + " is installed"
	}
}

func needRoot(context.Context) string {
	if runtime.GOOS != "linux" || os.Geteuid() != 0 {
		return "network namespaces need Linux and root"
	}
	return ""
}

// logs is where the logs of a mode go.
func logs(root, mode string) string { return filepath.Join(root, "bin", "gate", mode) }
