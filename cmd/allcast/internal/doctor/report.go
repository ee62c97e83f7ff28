package doctor

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/allcast/allcast/internal/units"
)

// report is the result of all checks of a network. Ranks index Cards and matrices.
type report struct {
	Cards     []card
	Group     netip.AddrPort
	Multicast matrix[int]
	UDP       matrix[int]
	TCP       [][]string // by rank that connects, then by rank that accepts: the error

	MaxSize      int // payload that the smallest MTU of all interfaces allows
	Size, Path   int // largest payload that arrives by multicast and by unicast; 0 if none does
	SizeCut      []pair
	PathCut      []pair
	Rate         units.Rate
	Loss         matrix[arrival]
	Watched      time.Duration // 0 if not watched
	Stopped      []pair
	StoppedAfter time.Duration
	Queries      []query
}

// Limits above which loss and reordering are findings.
const (
	maxLoss      = 0.002
	maxReordered = 0.01
)

// findings explains the report. works is true if Allcast can multicast between all machines.
func (r *report) findings() (all []finding, works bool) {
	all = append(all, r.machines()...)
	active := 0
	for i := range r.Cards {
		if r.Cards[i].active() {
			active++
		}
	}
	if active < 2 {
		return append(all, warn("network", "fewer than two machines take part, so there is nothing to check",
			"start the job on several machines")), false
	}
	checks := [][]finding{
		r.firewall(), r.multicast(), r.size(), r.path(), r.igmp(), r.querier(), r.lost(), r.order(), r.long(),
	}
	all = append(all, slices.Concat(checks...)...)
	works = !slices.ContainsFunc(all, func(f finding) bool { return f.Status == statusMissing })
	return all, works
}

func (r *report) machines() (all []finding) {
	var names []string
	for i := range r.Cards {
		c := &r.Cards[i]
		switch {
		case c.Error != "":
			all = append(all, missing("machine "+c.Name, c.Error,
				"set ALLCAST_IFNAME to an interface with an IPv4 address, the same network on all machines"))
		case !c.Twin:
			names = append(names, fmt.Sprintf("%s (%v, %s, MTU %d)", c.Name, c.Addr.Addr(), c.Iface, c.MTU))
		}
	}
	return append([]finding{ok("machines", fmt.Sprintf("%d: %s", len(names), strings.Join(names, "; ")))}, all...)
}

// list names directions for a message.
func (r *report) list(pairs []pair) string {
	const limit = 8
	var texts []string
	for i, p := range pairs {
		if i == limit {
			texts = append(texts, fmt.Sprintf("... (%d in all)", len(pairs)))
			break
		}
		texts = append(texts, r.Cards[p.From].Name+" to "+r.Cards[p.To].Name)
	}
	return strings.Join(texts, ", ")
}

// receivers names the machines at the ends of directions.
func (r *report) receivers(pairs []pair) string {
	var names []string
	for _, p := range pairs {
		if name := r.Cards[p.To].Name; !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return strings.Join(names, ", ")
}

const openFirewall = "sudo nft add rule inet filter input ip saddr NETWORK accept; with firewalld: " +
	"sudo firewall-cmd --permanent --zone=trusted --add-source=NETWORK; with ufw: sudo ufw allow from NETWORK"

// firewall reports directions in which unicast does not arrive.
func (r *report) firewall() (all []finding) {
	tcp := make(matrix[string], len(r.Cards)) // by rank that accepts, as the other matrices are
	for to := range r.Cards {
		tcp[to] = make([]string, len(r.Cards))
		for from := range r.Cards {
			tcp[to][from] = r.TCP[from][to]
		}
	}
	if cut := pairsOf(r.Cards, tcp, func(err string) bool { return err != "" }); cut != nil {
		all = append(all, missing("firewall, TCP", fmt.Sprintf("connections do not work: %s (%s)", r.list(cut),
			tcp[cut[0].To][cut[0].From]),
			fmt.Sprintf("let the firewall of %s accept TCP from the other machines, to ports 10000 and up: %s",
				r.receivers(cut), openFirewall)))
	} else {
		all = append(all, ok("firewall, TCP", "connections work in all directions"))
	}
	if cut := pairsOf(r.Cards, r.UDP, func(n int) bool { return n == 0 }); cut != nil {
		return append(all, missing("firewall, UDP", "datagrams do not arrive: "+r.list(cut),
			fmt.Sprintf("let the firewall of %s accept UDP from the other machines, also to 239.192.0.0/14: %s",
				r.receivers(cut), openFirewall)))
	}
	return append(all, ok("firewall, UDP", "datagrams arrive in all directions"))
}

func (r *report) multicast() []finding {
	const check = "multicast"
	cut := pairsOf(r.Cards, r.Multicast, func(n int) bool { return n == 0 })
	if cut == nil {
		return []finding{ok(check, fmt.Sprintf("every machine hears every other (group %v)", r.Group.Addr()))}
	}
	blocked := slices.DeleteFunc(slices.Clone(cut), func(p pair) bool { return r.UDP[p.To][p.From] > 0 })
	detail := fmt.Sprintf("does not arrive (group %v): %s", r.Group.Addr(), r.list(cut))
	if len(blocked) == len(cut) {
		return []finding{missing(check, detail+"; neither does unicast UDP", "open the firewall first, as above")}
	}
	var oneWay []pair
	for _, p := range cut {
		if r.Multicast[p.From][p.To] > 0 {
			oneWay = append(oneWay, p)
		}
	}
	if len(oneWay) == len(cut) {
		detail += "; the other direction works"
	}
	return []finding{missing(check, detail+"; unicast UDP works", fmt.Sprintf(
		"on %s, accept UDP to 239.192.0.0/14 and IGMP (sudo nft add rule inet filter input ip daddr 239.192.0.0/14 accept; "+
			"sudo nft add rule inet filter input ip protocol igmp accept); on the switches, enable an IGMP querier for the "+
			"VLAN or turn IGMP snooping off; between networks, enable PIM; see docs/networks.md", r.receivers(cut)))}
}

func (r *report) size() []finding {
	const check = "multicast size"
	switch r.Size {
	case 0:
		return nil // the finding about multicast says more
	case r.MaxSize:
		return []finding{ok(check, fmt.Sprintf("datagrams of up to %d bytes arrive, all that the interfaces' MTU of %d "+
			"allows",
			r.Size, r.MaxSize+overhead))}
	}
	return []finding{missing(check, fmt.Sprintf("datagrams of at most %d bytes arrive, although the interfaces' MTU of "+
		"%d allows %d; larger ones are lost: %s", r.Size, r.MaxSize+overhead, r.MaxSize, r.list(r.SizeCut)),
		r.mtuFix(r.Size))}
}

func (r *report) mtuFix(size int) string {
	return fmt.Sprintf("set the MTU of all switch ports and routers on the way to %d, or that of all machines to %d: "+
		"sudo ip link set dev %s mtu %[2]d", r.MaxSize+overhead, size+overhead, r.Cards[0].Iface)
}

func (r *report) path() []finding {
	const check = "path MTU"
	switch r.Path {
	case 0:
		return nil
	case r.MaxSize:
		return []finding{ok(check, fmt.Sprint(r.Path+overhead))}
	}
	return []finding{missing(check, fmt.Sprintf("%d, although the interfaces have %d; larger packets are lost: %s",
		r.Path+overhead, r.MaxSize+overhead, r.list(r.PathCut)), r.mtuFix(r.Path))}
}

func (r *report) igmp() []finding {
	const check = "IGMP version"
	versions := map[string][]string{}
	var order []string
	for i := range r.Cards {
		if c := &r.Cards[i]; c.active() {
			if versions[c.IGMP] == nil {
				order = append(order, c.IGMP)
			}
			versions[c.IGMP] = append(versions[c.IGMP], c.Name)
		}
	}
	if len(order) == 1 && order[0] != "" {
		return []finding{ok(check, order[0]+" on all machines")}
	}
	var parts []string
	for _, v := range order {
		name := v
		if v == "" {
			name = "unknown"
		}
		parts = append(parts, fmt.Sprintf("%s on %s", name, strings.Join(versions[v], ", ")))
	}
	return []finding{warn(check, strings.Join(parts, "; "),
		"none needed if multicast works; else set the same version on all queriers, and unset "+
			"net.ipv4.conf.all.force_igmp_version")}
}

func (r *report) querier() []finding {
	const check = "IGMP querier"
	const fix = "enable an IGMP querier on one switch or router of the VLAN (on a Linux bridge: sudo ip link set " +
		"dev BRIDGE type bridge mcast_querier 1), or turn IGMP snooping off"
	var seen, unknown, none []string
	for i := range r.Cards {
		switch c, q := &r.Cards[i], r.Queries[i]; {
		case !c.active():
		case q.From != "":
			seen = append(seen, fmt.Sprintf("%s sees %s", c.Name, q.From))
		case q.Unknown:
			unknown = append(unknown, c.Name)
		default:
			none = append(none, c.Name)
		}
	}
	switch {
	case len(seen) > 0 && len(none) == 0:
		return []finding{ok(check, strings.Join(seen, "; "))}
	case len(seen) > 0:
		return []finding{warn(check, strings.Join(seen, "; ")+"; no query reached "+strings.Join(none, ", "), fix)}
	case len(none) == 0:
		return []finding{warn(check, "unknown: only root can see queries ("+strings.Join(unknown, ", ")+")",
			"run as root, or check with --long that multicast keeps arriving")}
	case r.Watched > 2*time.Minute && r.Stopped == nil:
		return []finding{ok(check, fmt.Sprintf("none sent a query in %v, and multicast still arrives: no switch needs one",
			r.Watched))}
	case r.Watched > 0:
		return []finding{warn(check, fmt.Sprintf("no query in %v", r.Watched), fix)}
	}
	return []finding{warn(check, "no query during this check, and queriers send one in about two minutes; switches with "+
		"IGMP snooping stop forwarding after about 260 s without one", "add --long to find out; if multicast stops: "+fix)}
}

func (r *report) lost() []finding {
	check := fmt.Sprintf("loss at %v", r.Rate)
	worst, own := pair{-1, -1}, 0
	var most float64
	for _, p := range pairsOf(r.Cards, r.Loss, func(a arrival) bool { return a.Sent > 0 }) {
		a := r.Loss[p.To][p.From]
		own += a.Dropped
		// The receiver's own socket is not the network.
		if share := float64(a.Sent-a.Got-a.Dropped) / float64(a.Sent); share > most {
			worst, most = p, share
		}
	}
	var all []finding
	if own > 0 {
		all = append(all, warn("receive buffer", fmt.Sprintf("%d datagrams were dropped by full socket buffers", own),
			"sudo sysctl -w net.core.rmem_max=33554432 on all machines"))
	}
	if most <= maxLoss {
		if worst.From < 0 && len(pairsOf(r.Cards, r.Loss, func(a arrival) bool { return a.Sent > 0 })) == 0 {
			return all
		}
		return append(all, ok(check, fmt.Sprintf("at most %.2g %% of multicast datagrams in any direction", 100*most)))
	}
	a := r.Loss[worst.To][worst.From]
	return append(all, warn(check, fmt.Sprintf("%.2g %% of multicast datagrams (%d of %d) from %s",
		100*most, a.Sent-a.Got-a.Dropped, a.Sent, r.list([]pair{worst})),
		"Allcast repairs losses, but slowly: look for errors and full queues with ethtool -S and in the counters of the "+
			"switch ports; check cables and duplex; limit senders with ALLCAST_RATE; exempt the groups from storm control"))
}

func (r *report) order() []finding {
	const check = "reordering"
	worst, most, measured := pair{}, 0.0, false
	for _, p := range pairsOf(r.Cards, r.Loss, func(a arrival) bool { return a.Got > 0 }) {
		measured = true
		a := r.Loss[p.To][p.From]
		if share := float64(a.Reordered) / float64(a.Got); share > most {
			worst, most = p, share
		}
	}
	switch {
	case !measured:
		return nil
	case most <= maxReordered:
		return []finding{ok(check, fmt.Sprintf("at most %.2g %% of datagrams in any direction", 100*most))}
	}
	return []finding{warn(check, fmt.Sprintf("%.2g %% of datagrams from %s", 100*most, r.list([]pair{worst})),
		"none needed for correctness; for speed, let switches and bonds choose paths by flow, not by packet")}
}

func (r *report) long() []finding {
	const check = "multicast over time"
	switch {
	case r.Watched == 0:
		return nil
	case r.Stopped == nil:
		return []finding{ok(check, fmt.Sprintf("still arrives after %v", r.Watched))}
	}
	return []finding{missing(check, fmt.Sprintf("stopped arriving after about %v: %s", r.StoppedAfter.Round(time.Second),
		r.list(r.Stopped)), "a switch with IGMP snooping forgets the group, because no querier asks for it: enable an IGMP "+
		"querier on one switch or router of the VLAN, or turn IGMP snooping off; see docs/networks.md")}
}
