package archtest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
)

// A Graph maps a package to the packages that it imports, tests not counted. Packages of
// this module are named relative to it; the root is ".".
type Graph map[string][]string

// Load reads the imports that pattern and its dependencies have on Linux with the tag
// verbs. It returns two graphs: the packages of this module, and all but the
// standard library. It also returns the module of every package in the second graph.
func Load(pattern string) (own, all Graph, module map[string]string, err error) {
	cmd := exec.Command("go", "list", "-tags", "verbs", "-deps", "-json=ImportPath,Imports,Standard,Module", pattern)
	cmd.Env = append(os.Environ(), "GOOS=linux", "GOARCH=amd64", "CGO_ENABLED=1")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, nil, nil, fmt.Errorf("go list %s: %w: %s", pattern, err, stderr.Bytes())
	}
	type listed struct {
		ImportPath string
		Imports    []string
		Standard   bool
		Module     struct{ Path string }
	}
	own, all, module = Graph{}, Graph{}, map[string]string{}
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p listed
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, nil, nil, fmt.Errorf("go list %s: %w", pattern, err)
		}
		if p.Standard {
			continue
		}
		name := relative(p.ImportPath)
		module[name] = p.Module.Path
		all[name] = nil
		for _, to := range p.Imports {
			all[name] = append(all[name], relative(to))
		}
	}
	for name, imports := range all {
		all[name] = slices.DeleteFunc(imports, func(to string) bool { return module[to] == "" })
		if module[name] == Module {
			own[name] = slices.DeleteFunc(slices.Clone(all[name]), func(to string) bool { return module[to] != Module })
		}
	}
	return own, all, module, nil
}

func relative(path string) string {
	if path == Module {
		return "."
	}
	return strings.TrimPrefix(path, Module+"/")
}

// Packages returns the packages of the graph, sorted.
func (g Graph) Packages() []string { return slices.Sorted(maps.Keys(g)) }

// Reduced returns the graph without the imports that follow from other imports.
func (g Graph) Reduced() Graph {
	reduced := Graph{}
	for from, imports := range g {
		reduced[from] = slices.DeleteFunc(slices.Clone(imports), func(to string) bool {
			return slices.ContainsFunc(imports, func(via string) bool { return via != to && g.Chain(via, to) != nil })
		})
	}
	return reduced
}

// Chain returns a shortest chain of imports between two packages, both included, or nil.
func (g Graph) Chain(from, to string) []string {
	before := map[string]string{from: ""}
	for queue := []string{from}; len(queue) > 0; queue = queue[1:] {
		at := queue[0]
		if at == to {
			var chain []string
			for ; at != ""; at = before[at] {
				chain = append(chain, at)
			}
			slices.Reverse(chain)
			return chain
		}
		for _, next := range g[at] {
			if _, seen := before[next]; !seen {
				before[next] = at
				queue = append(queue, next)
			}
		}
	}
	return nil
}
