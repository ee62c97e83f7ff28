package lab

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"

	"github.com/allcast/allcast/internal/background"
	"github.com/allcast/allcast/internal/topology"
	"github.com/allcast/allcast/internal/units"
)

// DefaultName is the default name of a lab.
const DefaultName = "acl"

// Config describes a lab. The state file keeps it, so that every process computes the same Plan.
type Config struct {
	Name      string            // name of the lab; its namespaces are NAME-host0, NAME-leaf0, ...
	Topology  string            // spec, see package topology
	Rate      units.Rate        `json:",omitempty"` // rate of a host's link; 0 means unlimited
	UpRate    units.Rate        `json:",omitempty"` // rate of a host's sending side; 0 means Rate
	MTU       int               // MTU of all links
	Queue     units.Size        // queue length of a port with a rate
	Groups    int               // number of multicast groups, each with its own tree; 0 means defaultGroups
	Loss      units.Probability // loss of multicast and aggregation datagrams, independent at each receiver
	LossAll   units.Probability // loss of any packets, independent at each receiver
	Duplicate units.Probability // duplication of the same datagrams
	Threads   bool              `json:",omitempty"` // whether hosts can use threaded NAPI
	Inc       bool              `json:",omitempty"` // whether aggregators run in switches

	// Links between switches have 1/Oversubscribe of the rate that makes every level non-blocking; 0 means 1.
	Oversubscribe float64 `json:",omitempty"`
	// Rank r runs on host Placement[r], and hosts without a rank do not exist; nil means all hosts in order.
	Placement  []int           `json:",omitempty"`
	Background background.Spec `json:",omitzero"` // traffic of other jobs between the leaves
}

// Defaults of a Config's fields.
const (
	DefaultMTU   = 9000
	DefaultQueue = 8 << 20
)

// PortBurst is the number of bytes that a slow port may send at once after a pause. tbf segments or drops packets
// larger than its burst. Super-packets of 64 KiB must pass whole, and they count with the headers of all their
// segments.
const PortBurst = 128 << 10

const (
	minMTU    = 576 // required by IPv4 on every link (RFC 791)
	maxMTU    = 65535
	maxGroups = 64 // groups per process
	// A process has at most 16 streams unless there are more subgroups (see package mcast).
	maxDefaultGroups = 16

	// A queue must hold a super-packet, and tbf requires more than its burst.
	minQueue = 1 << 18
	maxQueue = 1 << 31
)

// ErrConfig marks an invalid configuration; nothing was changed.
var ErrConfig = errors.New("bad lab")

// ErrUnable marks a machine that cannot run a lab: no Linux, or no root.
var ErrUnable = errors.New("cannot have a lab")

// inputError is an ErrConfig without a prefix.
type inputError struct{ error }

func (inputError) Is(target error) bool { return target == ErrConfig }
func (e inputError) Unwrap() error      { return e.error }

func configError(format string, args ...any) error {
	return inputError{fmt.Errorf(format, args...)}
}

// An interface name has at most 15 bytes, and a namespace name is a file name.
var validName = regexp.MustCompile(`^[a-z][a-z0-9]{0,15}$`)

// complete fills in the defaults and validates the rest.
func (c Config) complete() (Config, error) {
	c.Name = cmp.Or(c.Name, DefaultName)
	c.MTU = cmp.Or(c.MTU, DefaultMTU)
	c.Queue = cmp.Or(c.Queue, DefaultQueue)
	c.UpRate = cmp.Or(c.UpRate, c.Rate)
	c.Oversubscribe = cmp.Or(c.Oversubscribe, 1)
	switch {
	case !validName.MatchString(c.Name):
		return c, configError("name %q: want a letter and up to 15 more small letters and digits", c.Name)
	case c.MTU < minMTU || c.MTU > maxMTU:
		return c, configError("MTU %d: want %d to %d", c.MTU, minMTU, maxMTU)
	case c.Queue < minQueue || c.Queue > maxQueue:
		return c, configError("a queue of %v: want %v to %v", c.Queue, units.Size(minQueue), units.Size(maxQueue))
	case c.Groups < 0 || c.Groups > maxGroups:
		return c, configError("%d multicast groups: want 1 to %d", c.Groups, maxGroups)
	case c.Loss == 1 || c.LossAll == 1:
		return c, configError("a loss of 100%%: nothing would arrive; take the link down instead")
	case c.Oversubscribe != 1 && c.Rate == 0:
		return c, configError("an oversubscription of %v needs a rate of the hosts' links (--rate)", c.Oversubscribe)
	case c.Background.Flows > 0 && c.Rate == 0:
		return c, configError("background traffic needs a rate of the hosts' links (--rate)")
	}
	return c, nil
}

// graph returns the network with its hosts numbered by rank, and checks that the kernel can switch it.
func (c Config) graph() (*topology.Graph, error) {
	g, err := topology.Parse(c.Topology)
	if err == nil {
		g, err = g.Oversubscribe(c.Oversubscribe)
	}
	if err != nil {
		return nil, inputError{err}
	}
	if g.Nodes() > maxNodes {
		return nil, configError("%s has %d hosts and switches: a lab has at most %d", g.Name, g.Nodes(), maxNodes)
	}
	ports := make([]int, g.Nodes())
	for _, l := range g.Links {
		ports[l.From]++
	}
	for n, k := range ports {
		if id := topology.NodeID(n); k > maxPorts && !g.IsHost(id) {
			return nil, configError("%s: %s would have %d ports, and the kernel routes multicast between "+
				"at most %d interfaces (MAXVIFS): use more leaves or fewer spines",
				g.Name, g.NodeName(id), k, maxPorts)
		}
	}
	if c.Background.Flows > 0 && g.Leaves() < 2 {
		return nil, configError("background traffic flows between leaves, and %s has only one", g.Name)
	}
	if c.Placement == nil {
		return g, nil
	}
	if g, err = g.Place(c.Placement); err != nil {
		return nil, configError("the placement of ranks: %w", err)
	}
	return g, nil
}

const (
	maxPorts = 32 // MAXVIFS of linux/mroute.h
	// Each node is a namespace and each host runs a process. One machine cannot make progress
	// with more nodes than this.
	maxNodes = 1024
)
