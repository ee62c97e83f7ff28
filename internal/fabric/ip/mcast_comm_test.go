package ip

import (
	"net/netip"
	"testing"
)

// The groups of all communicators of a job differ, from each other and from those of the job, for as long
// as there are addresses.
func TestCommGroups(t *testing.T) {
	const subs = 4
	for _, v6 := range []bool{false, true} {
		for _, seed := range []uint64{0, 1, 1 << 63} {
			seen := map[netip.Addr]bool{}
			for _, g := range GroupsFor(seed, subs, v6) {
				seen[g.Addr()] = true
			}
			for id := range uint32(10_000) {
				for sub := range subs {
					g := CommGroup(seed, id, sub, subs, v6)
					if seen[g] || !g.IsMulticast() || g.Is6() != v6 {
						t.Fatalf("seed %d: communicator %d has group %v in subgroup %d", seed, id, g, sub)
					}
					seen[g] = true
				}
			}
			for id := range uint32(1 << 18) {
				for _, g := range GroupsFor(seed, subs, v6) {
					if !v6 && CommGroup(seed, id<<14, 0, subs, v6) == g.Addr() {
						t.Fatalf("communicator %d has a group of the job", id<<14)
					}
				}
			}
		}
	}
}

// Groups from a prefix stay inside of it, and subgroups follow each other.
func TestCommGroupsInPrefix(t *testing.T) {
	for _, text := range []string{
		"239.196.0.0/16", "239.1.2.0/24", "239.1.2.3/32", "224.0.0.0/4", "ff15::/16", "ff15::ab00/120",
	} {
		p := netip.MustParsePrefix(text)
		seen := map[netip.Addr]bool{}
		size := 1 << min(8, p.Addr().BitLen()-p.Bits())
		for id := range uint32(size / min(size, 4)) {
			for sub := range min(size, 4) {
				g := CommGroupIn(p, 12345, id, sub, min(size, 4))
				if !p.Contains(g) || seen[g] {
					t.Fatalf("%v: communicator %d has group %v in subgroup %d", p, id, g, sub)
				}
				seen[g] = true
			}
		}
	}
}
