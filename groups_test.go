package allcast_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/allcast/allcast"
	"github.com/allcast/allcast/allcasttest"
	"github.com/allcast/allcast/internal/calltest"
	"github.com/allcast/allcast/internal/testenv"
)

// halves are two disjoint sets of eight ranks.
var halves = [][]int{{0, 1, 2, 3}, {4, 5, 6, 7}}

// Datagrams of a communicator do not reach ranks outside of it. A rank in several communicators receives all
// of them.
func TestCommunicatorsHaveGroups(t *testing.T) {
	allcasttest.Run(t, 5, allcast.Options{}, func(ctx context.Context, c *allcast.Comm) error {
		for i, members := range [][]int{{0, 1, 2}, {2, 3}, {0, 2, 1}} {
			if err := c.Barrier(ctx); err != nil {
				return err
			}
			before := c.Stats()
			if !slices.Contains(members, c.Rank()) {
				if err := drainQueues(ctx, c, members[0]); err != nil {
					return err
				}
				after := c.Stats()
				if n := after.ForeignChunks - before.ForeignChunks; n > 0 {
					t.Errorf("rank %d received %d datagrams of %v", c.Rank(), n, members)
				}
				continue
			}
			sub, err := c.Subset(ctx, members, "")
			if err == nil {
				err = calltest.Allgather(ctx, sub, uint64(i), 300_000, "mcast")
			}
			if err := errors.Join(err, drainQueues(ctx, c, members[0])); err != nil {
				return err
			}
			if c.Stats().ReceivedChunks == before.ReceivedChunks {
				t.Errorf("rank %d received nothing by multicast", c.Rank())
			}
		}
		return nil
	})
}

// Disjoint communicators that share the job's groups multicast at the same time, with small socket buffers.
// Each queue receives the datagrams of both. Ranks that do not run for a while may lose some, because a rank gives no
// credit to a communicator that it is not a member of; the tests of internal/node check that the windows of both fit.
func TestSharedGroupsShareCredit(t *testing.T) {
	group := netip.AddrPortFrom(netip.AddrFrom4([4]byte{239, 195, byte(os.Getpid() >> 8), byte(os.Getpid())}), 21999)
	o := allcast.Options{ReceiveBuffer: 212992, Groups: []netip.AddrPort{group}}
	n := testenv.Large(8 << 20)
	allcasttest.Run(t, 8, o, func(ctx context.Context, c *allcast.Comm) error {
		sub, err := c.Subset(ctx, halves[c.Rank()/4], "")
		if err != nil {
			return err
		}
		if err := c.Barrier(ctx); err != nil {
			return err
		}
		if err := calltest.Allgather(ctx, sub, 1, n/4, "mcast"); err != nil {
			return err
		}
		if err := c.Barrier(ctx); err != nil {
			return err
		}
		var s allcast.Stats
		if !testenv.Soon(func() bool { // the last datagrams may still be in the queue
			s = c.Stats()
			return s.ReceivedChunks > 0 && s.ForeignChunks > 0
		}) {
			t.Errorf("rank %d: %d chunks received, %d of others, %d dropped, %d repaired",
				c.Rank(), s.ReceivedChunks, s.ForeignChunks, s.DroppedChunks, s.RepairedChunks)
		}
		return nil
	})
}

// When sockets can join no more groups, all members of a communicator share those of the job. A closed
// communicator leaves its groups, and the next one has groups again.
func TestGroupsRunOut(t *testing.T) {
	var log logBuffer
	o := allcast.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))}
	const comms = 24
	limit, err := os.ReadFile("/proc/sys/net/ipv4/igmp_max_memberships")
	if n, e := strconv.Atoi(strings.TrimSpace(string(limit))); err != nil || e != nil || n > comms {
		t.Skipf("groups do not run out here: a socket can join %s", limit)
	}
	allcasttest.Run(t, 3, o, func(ctx context.Context, c *allcast.Comm) error {
		var all []*allcast.Comm
		for i := range comms {
			sub, err := c.Split(ctx, c.Rank()/2, 0)
			if err != nil {
				return err
			}
			if sub.Size() > 1 {
				if err := calltest.Allgather(ctx, sub, uint64(i), 20_000, "mcast"); err != nil {
					return fmt.Errorf("communicator %d: %w", i, err)
				}
			}
			all = append(all, sub)
		}
		// Rank 0 cannot join another group, and rank 2 could.
		sharing, err := reachesRank1(ctx, c)
		if err != nil {
			return err
		}
		for _, sub := range all {
			if err := sub.Close(); err != nil {
				return err
			}
		}
		apart := false
		for try := 0; err == nil && try < 10_000 && !apart; try++ { // groups are left in the background
			apart, err = reachesRank1(ctx, c)
			apart = !apart
		}
		if !sharing || !apart {
			t.Errorf("rank %d: shares groups %v, has groups afterwards %v", c.Rank(), sharing, apart)
		}
		return err
	})
	if text := log.String(); !strings.Contains(text, "igmp_max_memberships") ||
		!strings.Contains(text, "ranks outside the communicator receive its data too") {
		t.Errorf("the log does not say that groups ran out: %s", text)
	}
}

// reachesRank1 multicasts in a communicator of ranks 0 and 2, and reports whether rank 1 received datagrams.
func reachesRank1(ctx context.Context, c *allcast.Comm) (bool, error) {
	before := c.Stats().ForeignChunks
	if err := c.Barrier(ctx); err != nil {
		return false, err
	}
	if c.Rank() != 1 {
		sub, err := c.Subset(ctx, []int{2, 0}, "")
		if err == nil {
			err = errors.Join(calltest.Allgather(ctx, sub, 1, 20_000, "mcast"), sub.Close())
		}
		if err != nil {
			return false, err
		}
	}
	if err := drainQueues(ctx, c, 0); err != nil {
		return false, err
	}
	result := []byte{0}
	if c.Stats().ForeignChunks > before {
		result[0] = 1
	}
	err := c.Broadcast(ctx, result, 1)
	return result[0] == 1, err
}

// drainQueues returns when this rank has read all datagrams that reached its queue before the root called it.
func drainQueues(ctx context.Context, c *allcast.Comm, root int) error {
	return c.Broadcast(ctx, make([]byte, 1000), root, allcast.WithAlgorithm("mcast"))
}

// logBuffer collects the log of several ranks.
type logBuffer struct {
	mu   sync.Mutex
	text strings.Builder
}

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *logBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}
