package lab

import (
	"fmt"
	"net/netip"
	"os"
	"slices"
	"sync"
)

// watcher reads what hosts join. It keeps the trees of communicators' groups, and reports hosts that use
// groups without a tree. Their joins and datagrams go nowhere, and users should learn that from a message
// instead of a timeout.
type watcher struct {
	plan     *Plan
	members  *members
	mu       sync.Mutex
	log      *os.File
	reported map[string]bool // messages already reported
}

// watch reads a switch's IGMP socket until it is closed.
func (w *watcher) watch(n *Node, f *os.File) {
	buf := make([]byte, 2048)
	for {
		k, err := f.Read(buf)
		if err != nil {
			w.report("%s: reading IGMP: %v", n.Name, err)
			return
		}
		if source, group, ok := parseUpcall(buf[:k]); ok {
			if !commNet.Contains(group) { // otherwise the report that the sender has joined is on its way
				w.report("%s sends to %v, which has no tree", w.hostName(source), group)
			}
			continue
		}
		host, joined, left := parseReport(buf[:k])
		for _, g := range left {
			w.route(host, g, false)
		}
		for _, g := range joined {
			if w.route(host, g, true) {
				continue
			}
			isOurs := func(ours netip.AddrPort) bool { return ours.Addr() == g }
			if !slices.ContainsFunc(w.plan.Groups, isOurs) && !linkLocal.Contains(g) {
				w.report("%s joins %v, which has no tree", w.hostName(host), g)
			}
		}
	}
}

// linkLocal is the range of groups that never leave a link.
var linkLocal = netip.MustParsePrefix("224.0.0.0/24")

// route changes the tree of a communicator's group. It reports false for other groups.
func (w *watcher) route(host, group netip.Addr, joined bool) bool {
	if !commNet.Contains(group) {
		return false
	}
	if n := w.host(host); n != nil {
		if err := w.members.update(n.ID, group, joined); err != nil {
			w.report("%s and group %v: %v", n.Name, group, err)
		}
	}
	return true
}

func (w *watcher) host(addr netip.Addr) *Node {
	for h := range w.plan.Graph.Hosts {
		if w.plan.HostAddr(h) == addr {
			return w.plan.Nodes[h]
		}
	}
	return nil
}

func (w *watcher) hostName(addr netip.Addr) string {
	if n := w.host(addr); n != nil {
		return n.Name
	}
	return addr.String()
}

func (w *watcher) report(format string, args ...any) {
	line := fmt.Sprintf(format, args...)
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.reported[line] && len(w.reported) < 1000 {
		w.reported[line] = true
		_, _ = fmt.Fprintln(w.log, line) // best effort
	}
}
