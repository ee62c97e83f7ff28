package archtest

import (
	"fmt"
	"slices"
	"strings"
)

// Module is the path of this repository's module.
const Module = "github.com/allcast/allcast"

// A Layer is a set of packages. They may import each other and all lower layers but
// those in Except.
type Layer struct {
	Name     string
	About    string
	Except   []string // lower layers that this one may not import
	Packages []string // relative to the module; "x/..." is x and everything below x
}

// Layers lists the layers from top to bottom. Every package belongs to exactly one
// of them. The longest matching entry decides.
var Layers = []Layer{
	{
		Name: "tools", About: "programs and tests for developers",
		Packages: []string{"internal/tools/...", "internal/archtest", "internal/e2e/...", "internal/calltest", "bench/..."},
	},
	{
		Name: "command", About: "what people run",
		Packages: []string{"cmd/allcast/...", "bindings/...", "examples/..."},
	},
	{
		Name: "paper", About: "the paper's claims and their reproduction, and what a network would gain",
		Except:   []string{"engine", "fabrics"},
		Packages: []string{"internal/paper/...", "internal/plan"},
	},
	{
		Name: "library", About: "what people import",
		Except:   []string{"networks"},
		Packages: []string{".", "allcasttest", "transfer"},
	},
	{
		Name: "networks", About: "simulated networks and the lab",
		Except:   []string{"engine"},
		Packages: []string{"internal/sim", "internal/lab", "internal/report", "internal/clustertest"},
	},
	{
		Name: "engine", About: "joining a job, and running a node over a real network",
		Except:   []string{"models"},
		Packages: []string{"internal/world", "internal/rendezvous", "internal/joinhook", "internal/engine/..."},
	},
	{
		Name: "models", About: "models of cost and traffic",
		Except:   []string{"fabrics"},
		Packages: []string{"internal/model/...", "internal/background"},
	},
	{
		Name: "settings", About: "one validated value, and starting ranks with it",
		Packages: []string{"internal/settings", "internal/launch", "internal/observe"},
	},
	{
		Name: "fabrics", About: "real networks, and receiving in the kernel",
		Packages: []string{"internal/aggregate", "internal/fabric/...", "internal/offload/..."},
	},
	{
		Name: "sans-IO", About: "state machines without goroutines, sockets, clocks or randomness",
		Except: []string{"base"},
		Packages: []string{
			"internal/node", "internal/mcast", "internal/p2p", "internal/inc", "internal/agree", "internal/step",
			"internal/wire", "internal/place",
		},
	},
	{
		Name: "base", About: "packages that know nothing about collectives",
		Packages: []string{
			"internal/figure", "internal/inherit", "internal/oslimit", "internal/pcap", "internal/reduce", "internal/seal",
			"internal/testenv", "internal/units", "store",
		},
	},
	{
		Name: "topology", About: "graphs, routes and multicast trees",
		Packages: []string{"internal/topology"},
	},
}

// layerOf returns the index of a package's layer in Layers, or an error that says
// where to add the package.
func layerOf(pkg string) (int, error) {
	found, longest := -1, -1
	for i, l := range Layers {
		for _, entry := range l.Packages {
			if n := len(entry); n > longest && matches(entry, pkg) {
				found, longest = i, n
			}
		}
	}
	if found < 0 {
		return 0, fmt.Errorf("package %s is in no layer: add it to Layers in internal/archtest/layers.go", pkg)
	}
	return found, nil
}

func matches(entry, pkg string) bool {
	tree, ok := strings.CutSuffix(entry, "/...")
	return pkg == tree || ok && strings.HasPrefix(pkg, tree+"/")
}

// Check returns one line for each package in no layer and for each import that the
// table does not allow.
func Check(g Graph) []string {
	var wrong []string
	for _, from := range g.Packages() {
		upper, err := layerOf(from)
		if err != nil {
			wrong = append(wrong, err.Error())
			continue
		}
		for _, to := range g[from] {
			lower, err := layerOf(to)
			if err != nil || lower >= upper && !slices.Contains(Layers[upper].Except, Layers[lower].Name) {
				continue // a package in no layer is reported once, above
			}
			wrong = append(wrong, fmt.Sprintf("%s (layer %s) may not import %s (layer %s): see internal/archtest/layers.go",
				from, Layers[upper].Name, to, Layers[lower].Name))
		}
	}
	return wrong
}
