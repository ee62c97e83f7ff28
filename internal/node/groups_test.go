package node

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/allcast/allcast/internal/mcast"
)

// However ranks lend their room to communicators, the windows of all communicators whose datagrams reach a
// rank fit its queue together.
func TestWindowsFitEveryQueue(t *testing.T) {
	unit := uint64(mcast.ChargeOf(1, 1))
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.IntRange(2, 12).Draw(t, "ranks")
		room := rapid.Uint64Range(1, 500).Draw(t, "room")
		kind := rapid.SampledFrom([]Groups{GroupsShared, GroupsOwn}).Draw(t, "groups")
		n := New(0, Config{Size: size, Room: room, Groups: kind})
		lent := make([]uint64, size) // in units of the charge
		reach := make([]uint64, size)
		for range rapid.IntRange(1, 20).Draw(t, "communicators") {
			c := &comm{members: rapid.Permutation(upTo(size)).Draw(t, "ranks")}
			c.members = c.members[:rapid.IntRange(2, size).Draw(t, "members")]
			everybody := len(c.members) == size
			c.shared = !everybody && (kind == GroupsShared || rapid.Bool().Draw(t, "shared"))
			charge, _ := n.room(c)
			window := room
			for _, m := range c.members {
				window = min(window, (room*unit-lent[m])/uint64(charge))
			}
			window = rapid.Uint64Range(0, window).Draw(t, "window")
			for _, m := range c.members {
				lent[m] += window * uint64(charge)
				if !c.shared {
					reach[m] += window
				}
			}
			for r := range reach {
				if c.shared {
					reach[r] += window
				}
			}
		}
		for r, w := range reach {
			if w > room {
				t.Fatalf("%d datagrams may be on their way to rank %d, which has room for %d", w, r, room)
			}
		}
	})
}

// A communicator of all ranks takes one place per chunk. With groups of its own it uses the kernel's room;
// shared with others it does not, because others may receive it themselves.
func TestRoomOfCommunicators(t *testing.T) {
	one := mcast.ChargeOf(1, 1)
	for _, c := range []struct {
		groups  Groups
		members int
		share   bool
		want    mcast.Charge
		offload bool
	}{
		{GroupsApart, 8, false, one, true},
		{GroupsApart, 2, false, one, true},
		{GroupsShared, 8, false, one, true},
		{GroupsShared, 2, false, 4 * one, false},
		{GroupsOwn, 8, true, one, true},
		{GroupsOwn, 2, false, mcast.ChargeOf(4, 3), true},
		{GroupsOwn, 2, true, 16 * one, false},
	} {
		n := New(0, Config{Size: 8, Room: 100, Offload: 1000, Groups: c.groups, Layout: testConfig().Layout})
		if err := n.AddComm(1, upTo(c.members)); err != nil {
			t.Fatal(err)
		}
		if c.share {
			n.ShareGroups(1)
		}
		charge, pool := n.room(n.comms[1])
		if charge != c.want || (pool == n.offloadPool) != c.offload {
			t.Errorf("%+v: the charge is %d, the kernel's pool: %v", c, charge, pool == n.offloadPool)
		}
	}
	n := New(0, Config{Size: 8, Room: 100, MinRoom: 30, Groups: GroupsShared})
	if charge, _ := n.room(&comm{shared: true, members: upTo(2)}); charge != mcast.ChargeOf(27, 2) {
		t.Errorf("a queue elsewhere has room for 30: the charge is %d", charge)
	}
	New(0, Config{Size: 8}).ShareGroups(7) // has no effect
}
