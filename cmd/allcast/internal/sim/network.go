package sim

import (
	"github.com/allcast/allcast/cmd/allcast/internal/cli"
	"github.com/allcast/allcast/internal/background"
	"github.com/allcast/allcast/internal/sim"
)

// networkFlags describe the network of all simulations, and what else happens on it.
type networkFlags struct {
	cli.NetworkFlags
	cli.RoutingFlag
	Background string `placeholder:"SPEC"`
}

// networkTexts holds their help texts.
func networkTexts() map[string]string {
	texts := map[string]string{
		"routing": cli.RoutingHelp,
		"background": "Traffic of other jobs between leaves, in bursts at the rate of a host's link: " + background.Form +
			" (default none).",
	}
	for name, text := range cli.NetworkHelp {
		texts[name] = text
	}
	return texts
}

// applyNetwork checks the flags and adds the network to the configuration.
func (f *networkFlags) applyNetwork(cfg *sim.Config) error {
	g, err := f.Graph()
	if err != nil {
		return err
	}
	if cfg.Topology, err = f.Apply(g); err != nil {
		return err
	}
	if cfg.Background, err = background.Parse(f.Background); err != nil {
		return cli.Usagef("--background: %v", err)
	}
	if cfg.Background.Flows > 0 && g.Leaves() < 2 {
		return cli.Usagef("--background: traffic between leaves needs two of them, but %s has one", g.Name)
	}
	cfg.Labels = sim.Labels{
		Placement: cli.Unless("order", f.Placement), Routing: cli.Unless("dmodk", f.Routing),
	}
	return nil
}
