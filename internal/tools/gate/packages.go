package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

const module = "github.com/allcast/allcast"

// A kind says what the tests of a package need to themselves.
type kind int

const (
	processes kind = iota // start processes, or build networks: one package at a time
	library               // use sockets and goroutines of this process: one package at a time, with the race detector
	pure                  // neither: all processors, without the race detector
)

// kinds lists packages and folders of packages. All others start processes.
var kinds = map[kind][]string{
	library: {
		"", "allcasttest", "store", "transfer", "internal/engine", "internal/fabric", "internal/aggregate",
		"internal/rendezvous", "internal/world", "internal/observe", "internal/offload", "internal/inherit",
	},
	pure: {
		"internal/agree", "internal/archtest", "internal/background", "internal/calltest",
		"internal/clustertest", "internal/figure", "internal/inc", "internal/mcast", "internal/model",
		"internal/node", "internal/p2p", "internal/paper", "internal/pcap", "internal/place",
		"internal/plan", "internal/reduce", "internal/report", "internal/seal", "internal/settings",
		"internal/sim", "internal/step", "internal/testenv", "internal/topology", "internal/units",
		"internal/wire", "bench",
	},
}

// A pkg is a package with tests.
type pkg struct {
	path string // without the module
	dir  string
	kind kind
}

// name is what go test takes in the root of the repository.
func (p *pkg) name() string { return strings.TrimSuffix("./"+p.path, "/") }

// list returns all packages that have tests.
func (g *gate) list() ([]pkg, error) {
	out, err := g.output("go", "list", "-json=ImportPath,Dir,TestGoFiles,XTestGoFiles", "./...")
	if err != nil {
		return nil, err
	}
	var list []pkg
	for dec := json.NewDecoder(strings.NewReader(out)); dec.More(); {
		var p struct {
			ImportPath, Dir           string
			TestGoFiles, XTestGoFiles []string
		}
		if err := dec.Decode(&p); err != nil {
			return nil, err
		}
		if len(p.TestGoFiles)+len(p.XTestGoFiles) > 0 {
			path := strings.TrimPrefix(strings.TrimPrefix(p.ImportPath, module), "/")
			list = append(list, pkg{path, p.Dir, kindOf(path)})
		}
	}
	return list, nil
}

func kindOf(path string) kind {
	for k, folders := range kinds {
		for _, folder := range folders {
			if path == folder || folder != "" && strings.HasPrefix(path, folder+"/") {
				return k
			}
		}
	}
	return processes
}

// choose returns the packages of which a condition holds.
func (g *gate) choose(f func(*pkg) bool) []pkg {
	var list []pkg
	for i := range g.packages {
		if f(&g.packages[i]) {
			list = append(list, g.packages[i])
		}
	}
	return list
}

func (k kind) is(p *pkg) bool { return p.kind == k }

// binary is the path of the test binary of a package.
func (g *gate) binary(p *pkg, race bool) string {
	variant := "plain"
	if race {
		variant = "race"
	}
	return filepath.Join(g.work, variant, strings.ReplaceAll(p.path, "/", "_")+".test")
}

// compile builds test binaries with all processors. It does not vet: linting does.
func (g *gate) compile(list []pkg, race bool) error {
	// go test names a binary after the last element of the path, so that two of one name need two folders.
	rounds := []map[string]*pkg{}
	for i := range list {
		base := filepath.Base(module + "/" + list[i].path)
		for n := 0; ; n++ {
			if n == len(rounds) {
				rounds = append(rounds, map[string]*pkg{})
			}
			if rounds[n][base] == nil {
				rounds[n][base] = &list[i]
				break
			}
		}
	}
	for n, round := range rounds {
		dir := filepath.Join(g.work, fmt.Sprint("round", n))
		args := []string{"go", "test", "-c", "-ldflags=-w", "-o", dir + "/"}
		if race {
			args = append(args, "-race")
		}
		for _, p := range round {
			args = append(args, p.name())
		}
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
		if _, err := g.output(args...); err != nil {
			return err
		}
		for base, p := range round {
			to := g.binary(p, race)
			if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
				return err
			}
			if err := os.Rename(filepath.Join(dir, base+".test"), to); err != nil {
				return fmt.Errorf("%s: %w", p.name(), err)
			}
		}
	}
	return nil
}
