package world

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"github.com/allcast/allcast/internal/fabric"
	"github.com/allcast/allcast/internal/fabric/ip"
	"github.com/allcast/allcast/internal/mcast"
	"github.com/allcast/allcast/internal/seal"
	"github.com/allcast/allcast/internal/wire"
)

// groups returns the groups of the subgroups: those of the settings, or else some that follow from seed.
func (j *joining) groups(seed uint64) []netip.AddrPort {
	if j.Groups != nil {
		return j.Groups[:j.Subgroups]
	}
	return ip.GroupsFor(seed, j.Subgroups, j.local.Is6() && j.verbs == nil)
}

// streams is how many streams of a subgroup this rank can tell apart. Where the kernel places chunks, it
// needs no order of arrival, and one stream is enough.
func (j *joining) streams() int {
	if j.verbs != nil || j.off != nil {
		return 1
	}
	return mcast.StreamsPerSubgroup(j.Subgroups, j.Size)
}

// commGroup returns the function that derives the groups of communicators; nil: they share those of the job,
// because the network may forward no others.
func (j *joining) commGroup(seed uint64) func(id uint32, sub int) netip.Addr {
	switch v6 := j.local.Is6(); {
	case j.CommGroups.IsValid():
		return func(id uint32, sub int) netip.Addr { return ip.CommGroupIn(j.CommGroups, seed, id, sub, j.Subgroups) }
	case j.Groups == nil:
		return func(id uint32, sub int) netip.Addr { return ip.CommGroup(seed, id, sub, j.Subgroups, v6) }
	}
	return nil
}

// openGroups opens the groups on the fabric, with some streams per subgroup.
func (j *joining) openGroups(seed uint64, chunk, packet, streams int) (fabric.Multicast, error) {
	groups := j.groups(seed)
	if j.verbs != nil {
		return j.verbs.multicast(j, groups, chunk)
	}
	if p := j.CommGroups; p.IsValid() && p.Addr().Is6() != j.local.Is6() {
		return nil, fmt.Errorf("groups of communicators %v and local address %v are not of the same IP version "+
			"(Options.CommGroups, ALLCAST_COMM_GROUPS)", p, j.local)
	}
	cfg := ip.McastConfig{
		Interface: j.ifi, Local: j.local, Groups: ip.AddStreams(groups, streams), Subgroups: j.Subgroups,
		CommGroup: j.commGroup(seed),
		Chunk:     chunk + j.tag(), Packet: packet + j.tag(), TTL: j.TTL, DSCP: j.DSCP,
		ReceiveBuffer: j.ReceiveBuffer, PlainSockets: j.PlainSockets, Sums: j.sum() > 0, Poller: j.poller,
	}
	if j.off != nil {
		j.off.Forget() // the groups of the previous attempt
		cfg.Filter, cfg.Placer, cfg.Allocator = j.off.Filter, j.off, j.off
	}
	if why := j.tooLong(chunk, packet); why != "" {
		return nil, errors.New(why)
	}
	m, err := ip.OpenMulticast(cfg)
	if err != nil {
		return nil, err
	}
	if j.off != nil {
		j.off.Long(m.Cut())
	}
	j.features = m.Features
	return m, nil
}

// connectMulticast opens the groups and tests them. If the further streams of the subgroups do not arrive,
// perhaps because a firewall allows some ports only, the subgroups have one stream.
func (j *joining) connectMulticast(ctx context.Context, chunk, packet, streams int) (why string, err error) {
	if why, err = j.openMulticast(ctx, chunk, packet, streams); err != nil || why != "" {
		return why, err
	}
	why, several, err := j.probe(ctx)
	if err != nil || why != "" || several {
		return why, err
	}
	j.Logger.Warn("chains share the sockets of their subgroups: datagrams to the ports after those of the groups " +
		"do not arrive; is there a firewall?")
	j.closeMulticast()
	if why, err = j.openMulticast(ctx, chunk, packet, 1); err != nil || why != "" {
		return why, err
	}
	why, _, err = j.probe(ctx) // the groups may differ from those before
	return why, err
}

// openMulticast opens the groups. If a port is in use on some machine, all ranks try other groups, and
// fewer ports at last.
func (j *joining) openMulticast(ctx context.Context, chunk, packet, streams int) (why string, err error) {
	seed := j.number("groups")
	tries := []int{streams, streams, 1} // streams per subgroup
	switch {
	case j.Groups != nil && streams > 1:
		tries = tries[1:]
	case j.Groups != nil:
		tries = tries[2:]
	}
	for try, streams := range tries {
		var mine card
		var openErr error
		j.mc, openErr = j.openGroups(seed+uint64(try), chunk, packet, streams)
		if openErr != nil {
			j.mc, mine.NoMcast = nil, openErr.Error()
		} else {
			mine.Room = j.mc.Capabilities().Room
		}
		all, err := fold(ctx, j.session, mine, opened)
		if err != nil {
			return "", err
		}
		if j.minRoom, why = all.Room, all.NoMcast; why == "" {
			return "", nil
		}
		j.closeMulticast()
	}
	return why, nil
}

// opened returns the smallest room of all ranks, and why some could not open the groups.
func opened(cards []card) (card, error) {
	all := card{Room: cards[0].Room}
	var failed []string
	for r, c := range cards {
		all.Room = min(all.Room, c.Room)
		if c.NoMcast != "" {
			failed = append(failed, fmt.Sprintf("rank %d: %s", r, c.NoMcast))
		}
	}
	all.NoMcast = strings.Join(failed[:min(3, len(failed))], "; ")
	return all, nil
}

// tag is the number of bytes that encryption adds to a chunk.
func (j *joining) tag() int {
	if j.Secure {
		return seal.TagSize
	}
	return 0
}

// sum is the number of bytes that a checksum adds to a chunk. Encrypted chunks need none.
func (j *joining) sum() int {
	if j.Integrity && !j.Secure {
		return wire.SumSize
	}
	return 0
}
