package world

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"github.com/allcast/allcast/internal/fabric"
	"github.com/allcast/allcast/internal/fabric/ip"
	"github.com/allcast/allcast/internal/seal"
	"github.com/allcast/allcast/internal/wire"
)

// groups returns the groups to open: those of the settings, or else some that follow from seed.
func (j *joining) groups(seed uint64) []netip.AddrPort {
	if j.Groups != nil {
		return j.Groups[:j.Subgroups]
	}
	return ip.GroupsFor(seed, j.Subgroups, j.local.Is6() && j.verbs == nil)
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

// openGroups opens the groups on the fabric.
func (j *joining) openGroups(seed uint64, chunk, packet int) (fabric.Multicast, error) {
	groups := j.groups(seed)
	if j.verbs != nil {
		return j.verbs.multicast(j, groups, chunk)
	}
	if p := j.CommGroups; p.IsValid() && p.Addr().Is6() != j.local.Is6() {
		return nil, fmt.Errorf("groups of communicators %v and local address %v are not of the same IP version "+
			"(Options.CommGroups, ALLCAST_COMM_GROUPS)", p, j.local)
	}
	cfg := ip.McastConfig{
		Interface: j.ifi, Local: j.local, Groups: groups, CommGroup: j.commGroup(seed),
		Chunk: chunk + j.tag(), Packet: packet + j.tag(), TTL: j.TTL, DSCP: j.DSCP,
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

// openMulticast opens the groups. If a port is in use on some machine, all ranks try other groups.
func (j *joining) openMulticast(ctx context.Context, chunk, packet int) (why string, err error) {
	seed := j.number("groups")
	tries := uint64(3)
	if j.Groups != nil {
		tries = 1
	}
	for try := range tries {
		var mine card
		var openErr error
		j.mc, openErr = j.openGroups(seed+try, chunk, packet)
		if openErr != nil {
			j.mc, mine.NoMcast = nil, openErr.Error()
		} else {
			mine.Room = j.mc.Capabilities().Room
		}
		cards, err := exchange(ctx, j.session, mine)
		if err != nil {
			return "", err
		}
		var failed []string
		j.minRoom = cards[0].Room
		for r, c := range cards {
			j.minRoom = min(j.minRoom, c.Room)
			if c.NoMcast != "" {
				failed = append(failed, fmt.Sprintf("rank %d: %s", r, c.NoMcast))
			}
		}
		if len(failed) == 0 {
			return "", nil
		}
		why = strings.Join(failed[:min(3, len(failed))], "; ")
		j.closeMulticast()
	}
	return why, nil
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
