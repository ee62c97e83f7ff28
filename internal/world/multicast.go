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
)

// groups picks what to open. A network that forwards given groups only leaves no
// choice.
func (j *joining) groups(seed uint64) []netip.AddrPort {
	n := max(1, j.Subgroups)
	if j.Groups != nil {
		return j.Groups[:n]
	}
	return ip.GroupsFor(seed, n, j.local.Is6() && j.verbs == nil)
}

// openGroups opens the groups on the fabric.
func (j *joining) openGroups(groups []netip.AddrPort, chunk, packet int) (fabric.Multicast, error) {
	if j.verbs != nil {
		return j.verbs.multicast(j, groups, chunk)
	}
	cfg := ip.McastConfig{
		Interface: j.ifi, Local: j.local, Groups: groups,
		Chunk: chunk + j.tag(), Packet: packet + j.tag(), TTL: j.TTL, DSCP: j.DSCP, RecvBuffer: j.RecvBuffer, Plain: j.Plain, Sums: j.sum() > 0,
		Poller: j.poller,
	}
	if j.off != nil {
		j.off.Forget() // those of the try before
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

// openMulticast opens the groups; where a port is taken on some machine, others
// are tried.
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
		if j.mc != nil {
			_ = j.mc.Close()
			j.mc = nil
		}
	}
	return why, nil
}

// tag is what sealing adds to a chunk, sum what a checksum does: what is sealed needs none.
func (j *joining) tag() int {
	if j.Secure {
		return seal.TagSize
	}
	return 0
}

func (j *joining) sum() int {
	if j.Integrity && !j.Secure {
		return fabric.SumSize
	}
	return 0
}
