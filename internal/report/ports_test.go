package report

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/allcast/allcast/internal/topology"
)

// portsOf returns the port counters of all switches for the given bytes per link.
func portsOf(g *topology.Graph, bytes []uint64) (ports []Port) {
	for l, link := range g.Links {
		if !g.IsHost(link.From) {
			ports = append(ports, Port{
				Switch: g.NodeName(link.From), Port: g.NodeName(link.To), Tx: bytes[l], Rx: bytes[g.Reverse(topology.LinkID(l))],
			})
		}
	}
	return ports
}

func TestFromPorts(t *testing.T) {
	for _, spec := range networks {
		g := parse(t, spec)
		want := someRuns(g)[0].LinkBytes
		got, err := FromPorts(g, portsOf(g, want))
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %d, %v", spec, got, err)
		}
	}
}

// FromPorts needs only the lower end of each cable and ignores the upper one.
func TestFromLowerPorts(t *testing.T) {
	g := parse(t, "fat-tree:16,4,2")
	want := someRuns(g)[0].LinkBytes
	ports := slices.DeleteFunc(portsOf(g, want), func(p Port) bool { return strings.HasPrefix(p.Switch, "spine") })
	got, err := FromPorts(g, ports)
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%d, %v", got, err)
	}
}

func TestFromPortsRefuses(t *testing.T) {
	g := parse(t, "fat-tree:4,2,2")
	all := portsOf(g, make([]uint64, len(g.Links)))
	for _, c := range []struct {
		ports []Port
		want  string
	}{
		{nil, "no counters for the cable between host0 and leaf0"},
		{append(slices.Clone(all), all[0]), "twice"},
		{append(slices.Clone(all), Port{Switch: "leaf0", Port: "host3"}), "no port of leaf0 that leads to host3"},
		{append(slices.Clone(all), Port{Switch: "host0", Port: "leaf0"}), "no port of host0"},
		{
			slices.DeleteFunc(slices.Clone(all), func(p Port) bool { return p.Switch == "leaf1" && p.Port == "spine0" }),
			"leaf1 and spine0",
		},
	} {
		if _, err := FromPorts(g, c.ports); !errors.Is(err, ErrInput) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("error %v does not contain %q", err, c.want)
		}
	}
}
