package plan

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/allcast/allcast/internal/topology"
	"github.com/allcast/allcast/internal/units"
)

// A network file has one "key value" per line. Blank lines and everything after # are left out.

// fileKeys lists the keys with the form of their values.
var fileKeys = []struct{ name, form string }{
	{"hosts", "number of hosts"},
	{"hosts-per-leaf", "hosts of a full leaf"},
	{"leaves", "number of leaves"},
	{"uplinks", "links from each leaf up"},
	{"spines", "number of spines"},
	{"radix", "ports of a switch, in a network of three levels"},
	{"host-rate", "rate of a host's link"},
	{"uplink-rate", "rate of a link between switches"},
	{"latency", "latency of a link with its switch"},
}

// FileKeys returns the valid keys of a network file.
func FileKeys() string {
	names := make([]string, len(fileKeys))
	for i, k := range fileKeys {
		names[i] = k.name
	}
	return strings.Join(names, ", ")
}

// Defaults of a network.
const (
	DefaultRate    = 100e9
	DefaultLatency = 500 * time.Nanosecond
)

// maxFileNumber limits every number of a network file.
const maxFileNumber = 1 << 20

// networkFile holds the values of a file.
type networkFile struct {
	numbers map[string]int
	rates   map[string]units.Rate
	latency time.Duration
	lines   map[string]int // by key
}

// ParseNetwork reads a network file. Errors name the line or the key.
func ParseNetwork(text string) (*Network, error) {
	f := &networkFile{
		numbers: map[string]int{}, rates: map[string]units.Rate{}, latency: DefaultLatency, lines: map[string]int{},
	}
	line := 0
	for content := range strings.Lines(text) {
		line++
		content, _, _ = strings.Cut(content, "#")
		fields := strings.Fields(content)
		if len(fields) == 0 {
			continue
		}
		if err := f.set(fields, line); err != nil {
			return nil, fmt.Errorf("line %d: %w", line, err)
		}
	}
	return f.network()
}

// set sets the value of a line.
func (f *networkFile) set(fields []string, line int) (err error) {
	key := fields[0]
	if !slices.ContainsFunc(fileKeys, func(k struct{ name, form string }) bool { return k.name == key }) {
		return fmt.Errorf("unknown key %q; valid are %s", units.Printable(key), FileKeys())
	}
	if len(fields) != 2 {
		return fmt.Errorf("%s has %d values; want one", key, len(fields)-1)
	}
	if first := f.lines[key]; first > 0 {
		return fmt.Errorf("%s is in line %d already", key, first)
	}
	f.lines[key] = line
	switch key {
	case "host-rate", "uplink-rate":
		f.rates[key], err = units.ParseRate(fields[1])
	case "latency":
		f.latency, err = time.ParseDuration(fields[1])
		if err != nil || f.latency < 0 || f.latency > maxLatency {
			err = fmt.Errorf("%q is not a duration from 0s to %v, such as 500ns", units.Printable(fields[1]), maxLatency)
		}
	default:
		n, conversion := strconv.Atoi(fields[1])
		if f.numbers[key] = n; conversion != nil || n < 1 || n > maxFileNumber {
			err = fmt.Errorf("%q is not a whole number from 1 to %d", units.Printable(fields[1]), maxFileNumber)
		}
	}
	if err != nil {
		return fmt.Errorf("%s: %w", key, err)
	}
	return nil
}

const (
	maxLatency = time.Second
	maxUplinks = 1024
)

// network builds the network.
func (f *networkFile) network() (*Network, error) {
	n := &Network{Rate: DefaultRate, Latency: f.latency}
	if r := f.rates["host-rate"]; r > 0 {
		n.Rate = float64(r)
	}
	var err error
	if f.lines["radix"] > 0 {
		n.Graph, err = f.threeLevels()
	} else {
		n.Graph, err = f.twoLevels()
	}
	if err != nil {
		return nil, err
	}
	return n, nil
}

// exclude returns an error if one of the keys is set.
func (f *networkFile) exclude(why string, keys ...string) error {
	for _, key := range keys {
		if line := f.lines[key]; line > 0 {
			return fmt.Errorf("line %d: %s: %s", line, key, why)
		}
	}
	return nil
}

// threeLevels builds a fat-tree of switches with the same number of ports.
func (f *networkFile) threeLevels() (*topology.Graph, error) {
	if err := f.exclude("the radix determines it", "hosts-per-leaf", "leaves", "uplinks", "spines"); err != nil {
		return nil, err
	}
	if f.numbers["hosts"] == 0 {
		return nil, fmt.Errorf("no hosts: want a line such as %q", "hosts 1024")
	}
	g, err := topology.Parse(fmt.Sprintf("fat-tree3:%d,%d", f.numbers["hosts"], f.numbers["radix"]))
	if err != nil {
		return nil, err
	}
	return f.withRate(g, 1)
}

// twoLevels builds leaves and spines, or a single switch.
func (f *networkFile) twoLevels() (*topology.Graph, error) {
	hosts, perLeaf, leaves := f.numbers["hosts"], f.numbers["hosts-per-leaf"], f.numbers["leaves"]
	switch {
	case hosts == 0 && (perLeaf == 0 || leaves == 0):
		return nil, fmt.Errorf("the number of hosts is unknown: want hosts, or both hosts-per-leaf and leaves")
	case hosts == 0:
		hosts = perLeaf * leaves
	case perLeaf == 0 && leaves == 0:
		perLeaf, leaves = hosts, 1
	case perLeaf == 0:
		perLeaf = (hosts + leaves - 1) / leaves
	case leaves == 0:
		leaves = (hosts + perLeaf - 1) / perLeaf
	}
	if hosts > perLeaf*leaves || hosts > maxFileNumber {
		line := cmp.Or(f.lines["hosts"], f.lines["leaves"])
		return nil, fmt.Errorf("line %d: %d hosts do not fit: %d leaves with %d each hold %d, and at most %d are supported",
			line, hosts, leaves, perLeaf, perLeaf*leaves, maxFileNumber)
	}
	if leaves == 1 {
		if err := f.exclude("there is one leaf only", "uplinks", "spines", "uplink-rate"); err != nil {
			return nil, err
		}
		return topology.Parse(fmt.Sprintf("star:%d", hosts))
	}
	uplinks := f.numbers["uplinks"]
	switch {
	case uplinks == 0:
		return nil, fmt.Errorf("no uplinks: want a line such as %q", "uplinks 8")
	case uplinks > maxUplinks:
		return nil, fmt.Errorf("line %d: uplinks: %d are more than a switch has ports; want at most %d",
			f.lines["uplinks"], uplinks, maxUplinks)
	}
	spines := f.numbers["spines"]
	if spines == 0 {
		spines = uplinks
	}
	if uplinks%spines != 0 {
		return nil, fmt.Errorf("line %d: spines: a leaf's %d uplinks do not spread evenly over %d",
			f.lines["spines"], uplinks, spines)
	}
	// The graph may have more hosts than the network: they fill leaf by leaf, and the last leaf may not be full.
	g, err := topology.Parse(fmt.Sprintf("fat-tree:%d,%d,%d", perLeaf*leaves, leaves, spines))
	if err != nil {
		return nil, err
	}
	if hosts < g.Hosts {
		if g, err = g.Place(allRanks(hosts)); err != nil {
			return nil, err
		}
	}
	return f.withRate(g, uplinks/spines)
}

// withRate sets the rate of the links between switches. Several links between the same switches count as one.
func (f *networkFile) withRate(g *topology.Graph, cables int) (*topology.Graph, error) {
	up, host := f.rates["uplink-rate"], f.rates["host-rate"]
	if up > 0 && host == 0 {
		return nil, fmt.Errorf("line %d: uplink-rate: there is no host-rate to compare it with", f.lines["uplink-rate"])
	}
	if g.Shape().Spines == 0 {
		return g, nil
	}
	ratio := 1.0 // links of the same rate as hosts'
	if up > 0 {
		ratio = float64(up) / float64(host)
	}
	return g.Uplinks(ratio * float64(cables))
}
