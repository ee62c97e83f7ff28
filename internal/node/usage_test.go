package node

import (
	"errors"
	"strings"
	"testing"

	"github.com/allcast/allcast/internal/mcast"
)

func TestUnknownCommunicator(t *testing.T) {
	c := newCluster(t, 2, testConfig())
	n := c.hosts[0].node
	plan, err := mcast.Plan(allgather(2, 5, 4), c.cfg.Layout)
	if err != nil {
		t.Fatal(err)
	}
	if err := n.Start(c.Now, 3, 0, plan); !errors.Is(err, ErrComm) || !strings.Contains(err.Error(), "3") {
		t.Errorf("Start: %v", err)
	}
	if err := n.Abort(3); !errors.Is(err, ErrComm) || !strings.Contains(err.Error(), "3") {
		t.Errorf("Abort: %v", err)
	}
	// A node does not panic when its driver reports events of operations that do not exist.
	n.Sent(c.Now, 3, 0, 1)
	n.ReadDone(c.Now, 3, 0, 0, nil)
	n.Opened(c.Now, 3, 0, false)
	n.Pieces(c.Now, 1, 3, 0, 1, 0)
	n.Drained(c.Now, 3, 0)
	n.Quiesced(3, 0)
	c.comm(3, 0, 1)
	n.Sent(c.Now, 3, 0, 1)
	n.ReadDone(c.Now, 3, 0, 0, nil)
	n.Opened(c.Now, 3, 0, false)
	n.Pieces(c.Now, 1, 3, 0, 1, 0)
	n.Drained(c.Now, 3, 0)
	n.Quiesced(3, 0)
	if c.hosts[0].act() {
		t.Error("something happened")
	}
}

func TestStartForAnotherNumberOfRanks(t *testing.T) {
	c := world(t, 3, testConfig())
	for _, p := range []int{1, 2, 4} {
		plan, err := mcast.Plan(allgather(p, 5, 4), c.cfg.Layout)
		if err != nil {
			t.Fatal(err)
		}
		if err := c.hosts[0].node.Start(c.Now, 0, 0, plan); !errors.Is(err, ErrSize) {
			t.Errorf("%d ranks: %v", p, err)
		}
	}
	// A refused call takes no number.
	j := c.call(0, allgather(3, 5, 4))
	c.finish()
	c.allRight(j)
}

func TestAddCommRefuses(t *testing.T) {
	c := newCluster(t, 4, testConfig())
	n := c.hosts[1].node
	for _, tc := range []struct {
		name    string
		members []int
		want    string
	}{
		{"no members", nil, "rank 1 is not a member"},
		{"not ourselves", []int{0, 2}, "rank 1 is not a member"},
		{"not ourselves, in order", []int{0}, "rank 1 is not a member"},
		{"a rank beyond the world", []int{0, 1, 4}, "rank 4 is not in the world of 4"},
		{"a negative rank", []int{-1, 1}, "rank -1 is not in the world of 4"},
		{"a rank twice", []int{1, 2, 1}, "rank 1 appears twice"},
		{"a rank twice, in order so far", []int{0, 1, 2, 2}, "rank 2 appears twice"},
		{"a rank too many", []int{0, 1, 2, 3, 0}, "rank 0 appears twice"},
	} {
		if err := n.AddComm(8, tc.members); err == nil || !strings.Contains(err.Error(), tc.want) ||
			!strings.Contains(err.Error(), "communicator 8") {
			t.Errorf("%s: %v, want %q", tc.name, err, tc.want)
		}
	}
	c.comm(8, 3, 1) // refused communicators left nothing behind
	if err := n.AddComm(8, []int{0, 1}); err == nil || !strings.Contains(err.Error(), "communicator 8 exists") {
		t.Errorf("added twice: %v", err)
	}
	j := c.call(8, allgather(2, 5, 4))
	c.finish()
	c.allRight(j)
}

// A communicator made after one of its members died is broken from the start; one
// without it works.
func TestAddCommAfterADeath(t *testing.T) {
	c := newCluster(t, 4, testConfig())
	c.kill(true, 2)
	c.Until("the news", func() bool { return c.learned(2) })
	members := []int{3, 2, 0}
	c.comms[1] = members
	for _, r := range []int{3, 0} {
		if err := c.hosts[r].node.AddComm(1, members); err != nil {
			t.Fatal(err)
		}
	}
	j := c.job(1, allgather(3, 5, 4)).on(0, 3)
	c.allFailed(2, []Reason{Lost}, j)
	c.comm(2, 0, 1, 3)
	good := c.call(2, allgather(3, 5, 4))
	c.finish()
	c.allRight(good)
}
