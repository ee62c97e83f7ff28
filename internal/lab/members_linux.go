package lab

import (
	"errors"
	"net/netip"
	"slices"
	"sync"

	"github.com/allcast/allcast/internal/topology"
)

// members routes the groups of communicators to the hosts that have joined them, as switches with IGMP
// snooping and a multicast routing protocol do.
type members struct {
	plan   *Plan
	tables map[topology.NodeID]*mroute

	mu      sync.Mutex
	hosts   map[netip.Addr]map[topology.NodeID]bool // by group
	entries map[netip.Addr][][]Entry                // by group and node: those of the tables
}

func newMembers(p *Plan) *members {
	return &members{
		plan: p, tables: map[topology.NodeID]*mroute{},
		hosts: map[netip.Addr]map[topology.NodeID]bool{}, entries: map[netip.Addr][][]Entry{},
	}
}

// update changes the tree of a group that a host has joined or left.
func (m *members) update(host topology.NodeID, group netip.Addr, joined bool) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.hosts[group][host] == joined {
		return nil // hosts repeat their reports
	}
	if m.hosts[group] == nil {
		m.hosts[group] = map[topology.NodeID]bool{}
	}
	if joined {
		m.hosts[group][host] = true
	} else {
		delete(m.hosts[group], host)
	}
	want := m.plan.MemberEntries(group, m.hosts[group])
	old := m.entries[group]
	if m.entries[group] = want; len(m.hosts[group]) == 0 {
		delete(m.hosts, group)
		delete(m.entries, group)
	}
	var err error
	for id, table := range m.tables {
		for i := range want[id] {
			err = errors.Join(err, table.add(&want[id][i]))
		}
		if old == nil {
			continue
		}
		for i, e := range old[id] {
			if !slices.ContainsFunc(want[id], func(w Entry) bool { return w.Source == e.Source }) {
				err = errors.Join(err, table.remove(&old[id][i]))
			}
		}
	}
	return err
}
