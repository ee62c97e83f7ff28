package lab

import (
	"fmt"
	"strings"

	"github.com/allcast/allcast/cmd/allcast/internal/cli"
	"github.com/allcast/allcast/internal/lab"
)

type execCmd struct {
	nameFlag
	Node    string   `arg:"" help:"host3 (or 3), leaf0, spine1."`
	Command []string `arg:"" optional:"" passthrough:"" placeholder:"COMMAND" help:"The program and its arguments."`
}

// NoJSON implements cli.NoJSON.
func (execCmd) NoJSON() {}

func (execCmd) Help() string {
	return `Runs COMMAND inside a host or switch of a lab that is up, with ALLCAST_IFNAME, ALLCAST_GROUPS and
ALLCAST_COMM_GROUPS set, and with --inc also ALLCAST_AGGREGATORS and ALLCAST_SITE_KEY_FILE. "ip netns exec
acl-host3" does the same without the variables.

Example:
  allcast lab exec leaf0 -- ip -s mroute show`
}

func (execCmd) Arguments() (takes, needs string) {
	return "a host or switch and a command",
		"a host or switch and a command, as in: allcast lab exec host3 -- PROGRAM ARGUMENTS"
}

func (c *execCmd) Run(*cli.Env) error {
	command, err := program(c.Command)
	if err != nil {
		return err
	}
	if len(command) == 0 {
		return cli.Usagef("allcast lab exec needs a command, as in: allcast lab exec %s -- PROGRAM ARGUMENTS", c.Node)
	}
	l, err := lab.Attach(c.Name)
	if err == nil {
		err = l.Exec(c.Node, command)
	}
	return asUsage(err)
}

type countersCmd struct{ nameFlag }

func (countersCmd) Help() string {
	return `Prints the counters of all switch ports since the lab came up.

Example:
  allcast lab counters --json`
}

func (c *countersCmd) Run(e *cli.Env) error {
	l, err := lab.Attach(c.Name)
	if err != nil {
		return asUsage(err)
	}
	counters, err := l.Counters()
	if err != nil {
		return asUsage(err)
	}
	return printCounters(e, counters)
}

type linkCmd struct {
	nameFlag
	Port  string `arg:"" placeholder:"HOST|SWITCH:PORT" help:"One end of the cable: host3, or leaf0:spine1."`
	State string `arg:"" enum:"down,up" help:"down or up."`
}

// NoJSON implements cli.NoJSON.
func (linkCmd) NoJSON() {}

func (linkCmd) Help() string {
	return `Cuts a cable of a lab that is up, or reconnects it. Unicast is routed around the cut; multicast trees stay
as they are.

Example:
  allcast lab link leaf0:spine1 down`
}

func (linkCmd) Arguments() (takes, needs string) {
	return "one end of a cable, and down or up",
		"one end of a cable, and down or up, as in: allcast lab link leaf0:spine1 down"
}

func (c *linkCmd) Run(*cli.Env) error {
	l, err := lab.Attach(c.Name)
	if err != nil {
		return asUsage(err)
	}
	node, port, _ := strings.Cut(c.Port, ":")
	return asUsage(l.SetLink(node, port, c.State == "up"))
}

// maxPorts is the largest number of ports that the table lists one by one.
const maxPorts = 64

// printCounters prints the counters, which are also the last line of a run.
func printCounters(e *cli.Env, c *lab.Counters) error {
	if e.JSON {
		return e.PrintJSON(c)
	}
	t := &cli.Table{}
	t.Note("%s, %d hosts, %d switches: %d bytes on all link directions, %d of them contents of multicast datagrams",
		c.Topology, c.Hosts, c.Switches, c.LinkBytes, c.McastLinkBytes)
	if c.BaselineLinkBytes > 0 {
		t.Note("the baseline: %d bytes on all link directions, %d of them contents of multicast datagrams",
			c.BaselineLinkBytes, c.BaselineMcastLinkBytes)
	}
	if c.BackgroundBytes > 0 {
		t.Note("other jobs sent %d bytes meanwhile; rx and tx include them on each link that they crossed", c.BackgroundBytes)
	}
	if c.Lost > 0 || c.Dropped > 0 {
		t.Note("%d packets lost at hosts on request, %d dropped by full queues", c.Lost, c.Dropped)
	}
	if len(c.Ports) <= maxPorts {
		t.Row("switch", "port", "rx", "tx", "mcast rx", "mcast tx")
		for _, p := range c.Ports {
			t.Row(p.Switch, p.Port, p.Rx, p.Tx, p.McastRx, p.McastTx)
		}
		return e.PrintTable(t)
	}
	t.Note("one row per switch; --json lists every port")
	t.Row("switch", "ports", "rx", "tx", "mcast rx", "mcast tx")
	for i := 0; i < len(c.Ports); {
		var sum lab.Counting
		first := i
		for ; i < len(c.Ports) && c.Ports[i].Switch == c.Ports[first].Switch; i++ {
			p := &c.Ports[i]
			sum.Rx += p.Rx
			sum.Tx += p.Tx
			sum.McastRx += p.McastRx
			sum.McastTx += p.McastTx
		}
		t.Row(c.Ports[first].Switch, fmt.Sprint(i-first), sum.Rx, sum.Tx, sum.McastRx, sum.McastTx)
	}
	return e.PrintTable(t)
}
