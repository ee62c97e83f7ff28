// Package lab is "allcast lab": a real network of namespaces on one Linux machine.
package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/allcast/allcast/cmd/allcast/internal/cli"
	"github.com/allcast/allcast/internal/background"
	"github.com/allcast/allcast/internal/lab"
	"github.com/allcast/allcast/internal/units"
)

// Command is "allcast lab".
type Command struct {
	Run      runCmd      `cmd:"" help:"Build a network, run a command as one rank per host, print counters, take it down."`
	Up       upCmd       `cmd:"" help:"Build a network and leave it up."`
	Down     downCmd     `cmd:"" help:"Take a network down, even if the process that built it is gone."`
	Exec     execCmd     `cmd:"" help:"Run a command inside a host or switch."`
	Counters countersCmd `cmd:"" help:"Print the counters of the ports."`
	Report   reportCmd   `cmd:"" help:"Draw the bytes that runs put on each link."`
	Link     linkCmd     `cmd:"" help:"Cut a cable, or reconnect it."`
	Hold     holdCmd     `cmd:"" hidden:""`
	Enter    enterCmd    `cmd:"" hidden:""`
}

// Help implements kong.HelpProvider.
func (Command) Help() string {
	return `A real network on one Linux machine: hosts and switches are network namespaces. The kernel routes unicast
over all spines and multicast along static trees, and every port counts. It needs root and touches nothing
outside its own namespaces. Labs with different names (--name) are independent.

Examples:
  allcast lab run --topology fat-tree:16,4,2 -- allcast perf allgather --algo mcast -b 64K -w 0
  allcast lab run --topology star:8 --rate 200mbit --loss 1% -- allcast perf broadcast -b 8M
  allcast lab run --topology star:8 --rate 200mbit --inc -- allcast perf reduce-scatter --algo inc -b 1M
  allcast lab run --topology fat-tree:16,4,2 --rate 100mbit --oversubscribe 4 --placement random:1 -- \
      allcast perf allgather -b 128K
  allcast lab up --topology fat-tree:8,2,2
  allcast lab exec host3 -- ping -c 1 10.0.0.1
  allcast lab down`
}

// nameFlag chooses a lab.
type nameFlag struct {
	Name string `default:"acl" placeholder:"NAME" help:"Prefix of the namespaces: NAME-host0 and so on (default acl)."`
}

// networkFlags describe a lab.
type networkFlags struct {
	nameFlag
	cli.NetworkFlags
	Rate      units.Rate        `placeholder:"RATE"`
	UpRate    units.Rate        `placeholder:"RATE" help:"Rate of a host's sending side (default: that of its link)."`
	MTU       int               `name:"mtu" default:"9000" placeholder:"N" help:"MTU of all links (default 9000)."`
	Queue     *units.Size       `placeholder:"SIZE"`
	Groups    *int              `placeholder:"N"`
	Loss      units.Probability `default:"0" placeholder:"P"`
	LossAll   units.Probability `default:"0" placeholder:"P" help:"As --loss, for all packets."`
	Duplicate units.Probability `default:"0" placeholder:"P" help:"A datagram that --loss could drop arrives twice."`
	Threads   bool
	Inc       bool

	Background string `placeholder:"SPEC"`
}

// FlagHelp implements cli.FlagHelp.
func (networkFlags) FlagHelp() map[string]string {
	return map[string]string{
		"topology":      cli.NetworkHelp["topology"] + " At most 32 ports per switch.",
		"oversubscribe": cli.NetworkHelp["oversubscribe"] + " It needs --rate.",
		"placement":     cli.NetworkHelp["placement"] + " Hosts without a rank do not exist.",
		"background": "Traffic of other jobs, as real datagrams between leaves: " + background.Form +
			". Each flow sends bursts at the rate of a host's link, and its mean rate is that share of it. It needs --rate.",
		"rate": "Rate of a host's link (default: as fast as the machine); links between switches run at the multiple " +
			"that makes the tree non-blocking, divided by --oversubscribe.",
		"queue": "Queue of a port with a rate, which drops when it is full (default 8M).",
		"groups": "Multicast groups, each with a tree through its own spine, and so the number of subgroups that ranks use " +
			"(default: one per spine, at most 16; with --inc, none on the aggregators' spine if the others suffice).",
		"loss": "A multicast datagram is dropped at one receiver, independently; with --inc, so is a datagram to or from " +
			"an aggregator. Packets that the kernel handles before its network stack (--hook tcx or xdp of perf) are not " +
			"dropped: use ALLCAST_FAULT there.",
		"inc": "Start an aggregator in each leaf, and in the spines above that connect the leaves, for the algorithm inc. " +
			"Programs in the lab find them by ALLCAST_AGGREGATORS and ALLCAST_SITE_KEY_FILE.",
		"threads": "Prepare for hosts that receive in kernel threads (ALLCAST_RECEIVE_CORES): leaf ports then split the " +
			"super-packets of TCP, because veth would not.",
	}
}

// config returns the lab that the flags describe. An error is a usage error.
func (f *networkFlags) config() (lab.Config, error) {
	c := lab.Config{
		Name: f.Name, Topology: f.Topology, Rate: f.Rate, UpRate: f.UpRate, MTU: f.MTU,
		Loss: f.Loss, LossAll: f.LossAll, Duplicate: f.Duplicate, Threads: f.Threads, Inc: f.Inc,
		Oversubscribe: f.Oversubscribe,
	}
	if f.Queue != nil {
		if c.Queue = *f.Queue; c.Queue == 0 {
			return c, cli.Usagef("--queue 0: want a size such as 8M")
		}
		if f.Rate == 0 && f.UpRate == 0 {
			return c, cli.Usagef("--queue %v has no effect on links without a rate: give --rate or --up-rate", c.Queue)
		}
	}
	_, placement, err := f.Parse()
	if err != nil {
		return c, err
	}
	if f.Placement != "order" {
		c.Placement = placement
	}
	if c.Background, err = background.Parse(f.Background); err != nil {
		return c, cli.Usagef("--background: %v", err)
	}
	if f.Groups != nil {
		if c.Groups = *f.Groups; c.Groups == 0 {
			return c, cli.Usagef("--groups 0: want 1 or more")
		}
	}
	_, err = lab.NewPlan(c)
	return c, asUsage(err)
}

// options are those of a lab that this program starts.
func options(e *cli.Env, self []string) lab.Options {
	return lab.Options{Self: self, Aggregator: []string{self[0], "aggregator"}, Log: e.Message}
}

// self is the command line with which the lab starts this program again.
func self() ([]string, error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("finding the path of this program: %w", err)
	}
	return []string{exe, "lab"}, nil
}

// signalContext ends with the first signal that would end the process. The signals have no other effect until the lab
// is down. SIGPIPE must be caught too, because it would end the process when a pipe closes.
func signalContext() (context.Context, context.CancelFunc) {
	pipe := make(chan os.Signal, 1)
	signal.Notify(pipe, syscall.SIGPIPE)
	ctx, stop := signal.NotifyContext(context.Background(),
		syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT)
	return ctx, func() { stop(); signal.Stop(pipe) }
}

// asUsage turns mistakes that the user can fix into usage errors.
func asUsage(err error) error {
	if errors.Is(err, lab.ErrConfig) || errors.Is(err, lab.ErrUnable) {
		return cli.Usagef("%v", err)
	}
	return err
}

// program removes the "--" in front of a command. Without "--", the parser takes an unknown flag for the command.
func program(args []string) ([]string, error) {
	if len(args) > 0 && args[0] != "--" && strings.HasPrefix(args[0], "-") {
		return nil, &cli.UsageError{Msg: "unknown flag " + args[0], See: "allcast lab --help"}
	}
	return cli.Program(args), nil
}
