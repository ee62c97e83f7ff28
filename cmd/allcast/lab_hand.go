package main

import (
	"fmt"
	"strings"

	"github.com/allcast/allcast/internal/lab"
)

type labExecCmd struct {
	labName
	Node    string   `arg:"" help:"host3 (or 3), leaf0, spine1."`
	Command []string `arg:"" optional:"" passthrough:"" placeholder:"COMMAND" help:"The program, and its arguments."`
}

func (labExecCmd) Help() string {
	return `Runs COMMAND inside a host or switch of a lab that is up, with ALLCAST_IFNAME and ALLCAST_GROUPS set. "ip netns exec acl-host3" does the same without them.

Example:
  allcast lab exec leaf0 -- ip -s mroute show`
}

func (c *labExecCmd) Run(*app) error {
	command, err := labCommand(c.Command)
	if err != nil {
		return err
	}
	if len(command) == 0 {
		return usagef("allcast lab exec needs a command, as in: allcast lab exec %s -- PROGRAM ARGUMENTS", c.Node)
	}
	l, err := lab.Attach(c.Name)
	if err == nil {
		err = l.Exec(c.Node, command)
	}
	return labError(err)
}

type labCountersCmd struct{ labName }

func (labCountersCmd) Help() string {
	return `Prints what the ports of all switches have counted since the lab came up.

Example:
  allcast lab counters --json`
}

func (c *labCountersCmd) Run(a *app) error {
	l, err := lab.Attach(c.Name)
	if err != nil {
		return labError(err)
	}
	counters, err := l.Counters()
	if err != nil {
		return labError(err)
	}
	return a.labCounters(counters)
}

type labLinkCmd struct {
	labName
	Port  string `arg:"" placeholder:"HOST|SWITCH:PORT" help:"One end of the cable: host3, or leaf0:spine1."`
	State string `arg:"" enum:"down,up" help:"down or up."`
}

func (labLinkCmd) Help() string {
	return `Cuts a cable of a lab that is up, or mends it. Unicast is routed around what is cut; multicast trees stay as they are.

Example:
  allcast lab link leaf0:spine1 down`
}

func (c *labLinkCmd) Run(*app) error {
	l, err := lab.Attach(c.Name)
	if err != nil {
		return labError(err)
	}
	node, port, _ := strings.Cut(c.Port, ":")
	return labError(l.SetLink(node, port, c.State == "up"))
}

// labPorts is up to how many ports the table lists each.
const labPorts = 64

// labCounters prints counters: as the last line of a run, or by themselves.
func (a *app) labCounters(c *lab.Counters) error {
	if a.json {
		return a.printJSON(c)
	}
	t := &table{}
	t.note("%s, %d hosts, %d switches: %d bytes on all link directions, %d of them contents of multicast datagrams", c.Topology, c.Hosts, c.Switches, c.LinkBytes, c.McastLinkBytes)
	if c.Lost > 0 || c.Dropped > 0 {
		t.note("%d packets lost at hosts on request, %d dropped by full queues", c.Lost, c.Dropped)
	}
	if len(c.Ports) <= labPorts {
		t.row("switch", "port", "rx", "tx", "mcast rx", "mcast tx")
		for _, p := range c.Ports {
			t.row(p.Switch, p.Port, p.Rx, p.Tx, p.McastRx, p.McastTx)
		}
		return t.print(a.stdout)
	}
	t.note("switch by switch; --json lists every port")
	t.row("switch", "ports", "rx", "tx", "mcast rx", "mcast tx")
	for i := 0; i < len(c.Ports); {
		var sum lab.Counting
		first := i
		for ; i < len(c.Ports) && c.Ports[i].Switch == c.Ports[first].Switch; i++ {
			p := &c.Ports[i]
			sum.Rx, sum.Tx, sum.McastRx, sum.McastTx = sum.Rx+p.Rx, sum.Tx+p.Tx, sum.McastRx+p.McastRx, sum.McastTx+p.McastTx
		}
		t.row(c.Ports[first].Switch, fmt.Sprint(i-first), sum.Rx, sum.Tx, sum.McastRx, sum.McastTx)
	}
	return t.print(a.stdout)
}
