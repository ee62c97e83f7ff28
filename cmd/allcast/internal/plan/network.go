package plan

import (
	"os"
	"time"

	"github.com/allcast/allcast/cmd/allcast/internal/cli"
	"github.com/allcast/allcast/internal/plan"
	"github.com/allcast/allcast/internal/topology"
)

// MaxHosts limits the networks to plan for: larger ones take more time than people wait.
const maxHosts = 16384

// maxLatency limits --latency.
const maxLatency = time.Second

// network returns the network of --topology or --network.
func (c *Command) network() (n plan.Network, err error) {
	switch {
	case c.Topology == "" && c.Network == "":
		return n, &cli.UsageError{
			Msg: "plan needs a network: --topology (" + cli.TopologyForms + ") or --network FILE",
			See: "allcast plan --help",
		}
	case c.Topology != "" && c.Network != "":
		return n, cli.Usagef("--topology and --network exclude each other")
	case c.Network != "":
		n, err = c.networkFile()
	default:
		n, err = c.networkSpec()
	}
	if err != nil {
		return n, err
	}
	if n.Graph.Hosts > maxHosts {
		return n, cli.Usagef("%d hosts are too many to plan for; want at most %d", n.Graph.Hosts, maxHosts)
	}
	return n, nil
}

func (c *Command) networkSpec() (n plan.Network, err error) {
	n.Rate, n.Latency = plan.DefaultRate, plan.DefaultLatency
	if c.Rate != nil {
		n.Rate = float64(*c.Rate)
	}
	if c.Latency != nil {
		n.Latency = *c.Latency
	}
	if n.Latency < 0 || n.Latency > maxLatency {
		return n, cli.Usagef("--latency: %v is out of range; want 0s to %v", n.Latency, maxLatency)
	}
	if n.Graph, err = topology.Parse(c.Topology); err != nil {
		return n, cli.Usagef("--topology: %v", err)
	}
	if c.Oversubscribe != nil {
		if n.Graph, err = n.Graph.Oversubscribe(*c.Oversubscribe); err != nil {
			return n, cli.Usagef("--oversubscribe: %v", err)
		}
	}
	return n, nil
}

func (c *Command) networkFile() (n plan.Network, err error) {
	for _, flag := range []struct {
		name  string
		given bool
	}{{"--rate", c.Rate != nil}, {"--latency", c.Latency != nil}, {"--oversubscribe", c.Oversubscribe != nil}} {
		if flag.given {
			return n, cli.Usagef("%s has no effect with --network: the file says it", flag.name)
		}
	}
	text, err := os.ReadFile(c.Network)
	if err != nil {
		return n, cli.Usagef("--network: %v", err)
	}
	parsed, err := plan.ParseNetwork(string(text))
	if err != nil {
		return n, cli.Usagef("--network: %s: %v", c.Network, err)
	}
	return *parsed, nil
}
