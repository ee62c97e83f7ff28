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

// openGroups opens the groups on the fabric.
func (j *joining) openGroups(groups []netip.AddrPort, chunk, packet int) (fabric.Multicast, error) {
	if j.verbs != nil {
		return j.verbs.multicast(j, groups, chunk)
	}
	cfg := ip.McastConfig{
		Interface: j.ifi, Local: j.local, Groups: groups,
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
		j.mc, openErr = j.openGroups(j.groups(seed+try), chunk, packet)
		if openErr != nil {
			j.mc, mine.NoMcast = nil, openErr.Error()
		}
		cards, err := exchange(ctx, j.session, mine)
		if err != nil {
			return "", err
		}
		var failed []string
		for r, c := range cards {
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
