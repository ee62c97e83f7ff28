package lab

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"

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
	Groups    int               // number of multicast groups, each with its own tree
	Loss      units.Probability // loss of multicast and aggregation datagrams, independent at each receiver
	LossAll   units.Probability // loss of any packets, independent at each receiver
	Duplicate units.Probability // duplication of the same datagrams
	Threads   bool              `json:",omitempty"` // whether hosts can use threaded NAPI
	Inc       bool              `json:",omitempty"` // whether aggregators run in switches
}

// Defaults of a Config's fields.
const (
	DefaultMTU    = 9000
	DefaultQueue  = 8 << 20
	DefaultGroups = 4
)

const (
	minMTU    = 576 // required by IPv4 on every link (RFC 791)
	maxMTU    = 65535
	maxGroups = 64 // groups per process

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
	c.Groups = cmp.Or(c.Groups, DefaultGroups)
	c.UpRate = cmp.Or(c.UpRate, c.Rate)
	switch {
	case !validName.MatchString(c.Name):
		return c, configError("name %q: want a letter and up to 15 more small letters and digits", c.Name)
	case c.MTU < minMTU || c.MTU > maxMTU:
		return c, configError("MTU %d: want %d to %d", c.MTU, minMTU, maxMTU)
	case c.Queue < minQueue || c.Queue > maxQueue:
		return c, configError("a queue of %v: want %v to %v", c.Queue, units.Size(minQueue), units.Size(maxQueue))
	case c.Groups < 1 || c.Groups > maxGroups:
		return c, configError("%d multicast groups: want 1 to %d", c.Groups, maxGroups)
	case c.Loss == 1 || c.LossAll == 1:
		return c, configError("a loss of 100%%: nothing would arrive; take the link down instead")
	}
	return c, nil
}

// graph parses the topology and checks that the kernel can switch it.
func (c Config) graph() (*topology.Graph, error) {
	g, err := topology.Parse(c.Topology)
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
	return g, nil
}

const (
	maxPorts = 32 // MAXVIFS of linux/mroute.h
	// Each node is a namespace and each host runs a process. One machine cannot make progress
	// with more nodes than this.
	maxNodes = 1024
)
