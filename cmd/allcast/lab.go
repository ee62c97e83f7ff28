package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/allcast/allcast/internal/lab"
	"github.com/allcast/allcast/internal/units"
)

type labCmd struct {
	Run      labRunCmd      `cmd:"" help:"Build a network, run a command as one rank a host, count, take it down."`
	Up       labUpCmd       `cmd:"" help:"Build a network and leave it up."`
	Down     labDownCmd     `cmd:"" help:"Take it down, whatever became of who built it."`
	Exec     labExecCmd     `cmd:"" help:"Run a command inside a host or switch."`
	Counters labCountersCmd `cmd:"" help:"Print what the ports have counted."`
	Report   labReportCmd   `cmd:"" help:"Draw what runs have put on each link."`
	Link     labLinkCmd     `cmd:"" help:"Cut a cable, or mend it."`
	Hold     labHoldCmd     `cmd:"" hidden:""`
	Enter    labEnterCmd    `cmd:"" hidden:""`
}

func (labCmd) Help() string {
	return `A real network on one Linux machine: hosts and switches are network namespaces, the kernel routes unicast over all spines and multicast along static trees, and every port counts. It needs root, and touches nothing but its own namespaces.

Examples:
  allcast lab run --topology fat-tree:16,4,2 -- allcast perf allgather --algo mcast -b 64K
  allcast lab run --topology star:8 --rate 200mbit --loss 1% -- allcast perf broadcast -b 8M
  allcast lab up --topology fat-tree:8,2,2
  allcast lab exec host3 -- ping -c 1 10.0.0.1
  allcast lab down`
}

// labName says which lab is meant.
type labName struct {
	Name string `default:"acl" placeholder:"NAME" help:"Name of the lab (default acl); its namespaces are NAME-host0, NAME-leaf0 and so on. Labs of different names do not disturb each other."`
}

// labFlags describe a network.
type labFlags struct {
	labName
	Topology  string            `required:"" placeholder:"SPEC" help:"Network: star:8, fat-tree:HOSTS,LEAVES,SPINES or fat-tree3:HOSTS,RADIX; at most 32 ports a switch."`
	Rate      units.Rate        `placeholder:"RATE" help:"Rate of a host's link (default: as fast as the machine); links between switches run at the multiple that makes the tree non-blocking."`
	UpRate    units.Rate        `placeholder:"RATE" help:"Rate of a host's sending side (default: that of its link)."`
	MTU       int               `name:"mtu" default:"9000" placeholder:"N" help:"MTU of all links (default 9000)."`
	Queue     units.Size        `default:"8M" placeholder:"SIZE" help:"What a port with a rate queues before it drops (default 8M)."`
	Groups    int               `default:"4" placeholder:"N" help:"Multicast groups, each with a tree through its own spine (default 4): as many subgroups can be used."`
	Loss      units.Probability `default:"0" placeholder:"P" help:"A multicast datagram is dropped at one receiver, independently. What the kernel takes before its network stack (--hook tcx or xdp of perf) is not: use ALLCAST_FAULT there."`
	LossAll   units.Probability `default:"0" placeholder:"P" help:"Likewise, and any other packet."`
	Duplicate units.Probability `default:"0" placeholder:"P" help:"A multicast datagram arrives twice."`
	Threads   bool              `help:"Hosts may take packets by threads of the kernel (ALLCAST_RECEIVE_CORES): leaf ports then cut TCP's super-packets, or veth would not."`
}

func (f *labFlags) config() lab.Config {
	return lab.Config{
		Name: f.Name, Topology: f.Topology, Rate: f.Rate, UpRate: f.UpRate, MTU: f.MTU, Queue: f.Queue, Groups: f.Groups,
		Loss: f.Loss, LossAll: f.LossAll, Duplicate: f.Duplicate, Threads: f.Threads,
	}
}

// labSelf is how the lab runs this very command for its own purposes.
func labSelf() ([]string, error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("finding ourselves: %w", err)
	}
	return []string{exe, "lab"}, nil
}

// labContext ends with the first signal that would end us: until the lab is down, no
// other may. A closed pipe is one of them if nobody asks for it.
func labContext() (context.Context, context.CancelFunc) {
	pipe := make(chan os.Signal, 1)
	signal.Notify(pipe, syscall.SIGPIPE)
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT)
	return ctx, func() { stop(); signal.Stop(pipe) }
}

// labError makes a usage error of what is the user's to mend.
func labError(err error) error {
	if errors.Is(err, lab.ErrConfig) || errors.Is(err, lab.ErrUnable) {
		return usagef("%v", err)
	}
	return err
}

// labCommand takes the -- off a command. Without one, the parser takes what it does
// not know for the command.
func labCommand(args []string) ([]string, error) {
	switch {
	case len(args) > 0 && args[0] == "--":
		return args[1:], nil
	case len(args) > 0 && strings.HasPrefix(args[0], "-"):
		return nil, &usageError{msg: "unknown flag " + args[0], see: "allcast lab --help"}
	}
	return args, nil
}
