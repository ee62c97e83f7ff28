package control

import (
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/allcast/allcast/internal/fabric"
	"github.com/allcast/allcast/internal/node"
	"github.com/allcast/allcast/internal/settings"
	"github.com/allcast/allcast/internal/wire"
)

// groupNet is a fabric in memory where communicators have multicast groups of their own.
type groupNet struct {
	memNet
	mu     sync.Mutex
	groups map[uint32][]int // by communicator: ranks in its group
	fails  map[int]error    // by rank: the error of AddComm
	deaf   map[int]bool     // ranks that join a group and hear nothing of it
	gate   chan struct{}    // delays AddComm of later communicators until it is closed; nil: no delay
	other  int              // datagrams that reached ranks outside of their communicator
}

// groupRank is one rank's side of a groupNet.
type groupRank struct {
	*memRank
	net *groupNet
}

func (m *groupRank) Sender(int) fabric.Sender { return m }

func (m *groupRank) Capabilities() fabric.Capabilities {
	c := m.memRank.Capabilities()
	c.Groups = m
	return c
}

func (m *groupRank) AddComm(id uint32, _ string) error {
	if id > FirstComm && m.net.gate != nil {
		<-m.net.gate
	}
	m.net.mu.Lock()
	defer m.net.mu.Unlock()
	if err := m.net.fails[m.rank]; err != nil {
		return err
	}
	m.net.groups[id] = append(m.net.groups[id], m.rank)
	return nil
}

func (m *groupRank) RemoveComm(id uint32) {
	m.net.mu.Lock()
	defer m.net.mu.Unlock()
	m.net.groups[id] = slices.DeleteFunc(m.net.groups[id], func(r int) bool { return r == m.rank })
}

// Send sends to the communicator's group if this rank is in it, otherwise to the job's group.
func (m *groupRank) Send(b *fabric.Batch) (int, error) {
	m.net.mu.Lock()
	group := slices.Clone(m.net.groups[b.Headers[0].Comm])
	m.net.mu.Unlock()
	own := slices.Contains(group, m.rank)
	for _, to := range m.net.ranks {
		if to == m.memRank || own && (!slices.Contains(group, to.rank) || m.net.deaf[to.rank]) {
			continue
		}
		for i := range b.Headers {
			to.queue <- memDatagram{b.Headers[i], slices.Clone(b.Payloads[i])}
		}
		if to.rank >= groupMembers {
			m.net.mu.Lock()
			m.net.other++
			m.net.mu.Unlock()
		}
	}
	m.sent += uint64(len(b.Headers))
	return len(b.Headers), nil
}

const groupMembers = 3

// groupEngines starts four engines. The first three have a communicator.
func groupEngines(t *testing.T, fails map[int]error, deaf map[int]bool, deadline time.Duration) (*groupNet, []*engine) {
	t.Helper()
	n := &groupNet{memNet: *newMemNet(groupMembers + 1), groups: map[uint32][]int{}, fails: fails, deaf: deaf}
	var all []*engine
	for r, m := range n.ranks {
		m.net = &n.memNet
		e, err := newEngine(Config{
			Config: process(r, len(n.ranks)), Multicast: &groupRank{m, n}, Secret: []byte("secret"),
			Liveness: settings.Liveness{Deadline: deadline},
			Reliable: func(h fabric.Handler) (fabric.Reliable, error) { m.h = h; return reliable(memReliable{m}), nil },
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = e.Close() })
		all = append(all, e)
	}
	for _, e := range all[:groupMembers] {
		if err := e.AddComm(FirstComm, "2", []int{2, 1, 0}); err != nil {
			t.Fatal(err)
		}
		if !e.HasGroups() {
			t.Fatal("the communicator has no groups of its own")
		}
	}
	return n, all[:groupMembers]
}

// probeAll lets all members test the groups, and returns the ranks that each did not hear.
func probeAll(t *testing.T, all []*engine) (unheard [][]int) {
	t.Helper()
	probes := make([]*GroupProbe, len(all))
	var wg sync.WaitGroup
	for r, e := range all {
		wg.Go(func() { probes[r] = e.ProbeGroups(t.Context(), FirstComm) })
	}
	wg.Wait()
	for _, p := range probes {
		p.Stop()
		unheard = append(unheard, p.Unheard)
	}
	return unheard
}

// multicasts makes a Broadcast on the communicator, and returns how many chunks had to be fetched.
func multicasts(t *testing.T, all []*engine) (repaired uint64) {
	t.Helper()
	var reqs []*Request
	for _, e := range all {
		r, err := e.Start(FirstComm, Call{Kind: wire.Broadcast, Algo: Multicast, Recv: make([]byte, 1000)})
		if err != nil {
			t.Fatal(err)
		}
		reqs = append(reqs, r)
	}
	for r := range reqs {
		if <-reqs[r].Done(); reqs[r].Err() != nil {
			t.Fatal(reqs[r].Err())
		}
	}
	for _, e := range all {
		repaired += e.Stats().Repaired
	}
	return repaired
}

// Only the members of a communicator hear each other on its own groups.
func TestProbeGroups(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, all := groupEngines(t, nil, nil, 0)
		for r, unheard := range probeAll(t, all) {
			if len(unheard) > 0 {
				t.Errorf("rank %d did not hear %v", r, unheard)
			}
		}
		if repaired := multicasts(t, all); repaired > 0 || n.other > 0 {
			t.Errorf("%d chunks were fetched, and %d datagrams reached another rank", repaired, n.other)
		}
		if e := newMemNet(1).engines(t)[0]; e.HasGroups() {
			t.Error("a network that keeps nobody apart has groups of communicators")
		}
	})
}

// The test finds a member that hears nothing on the groups, and the job's groups still work.
func TestProbeFindsDeafMember(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, all := groupEngines(t, nil, map[int]bool{1: true}, 400*time.Millisecond)
		for r, unheard := range probeAll(t, all) {
			// The communicator numbers its members in reverse.
			if want := map[int][]int{1: {0, 2}}[r]; !slices.Equal(unheard, want) {
				t.Errorf("rank %d did not hear %v, want %v", r, unheard, want)
			}
		}
		for _, e := range all {
			e.ShareGroups(FirstComm)
		}
		if repaired := multicasts(t, all); repaired > 0 || n.other == 0 {
			t.Errorf("%d chunks were fetched; %d datagrams reached a rank that shares the groups", repaired, n.other)
		}
	})
}

// A member that could not join reports it.
func TestProbeWithoutGroups(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, all := groupEngines(t, map[int]error{0: errors.New("no more groups")}, nil, 0)
		unheard := probeAll(t, all)
		if len(unheard[0]) == 0 {
			t.Error("a rank that is not in the groups heard everybody there")
		}
		if len(unheard[1]) > 0 || len(unheard[2]) > 0 {
			t.Errorf("datagrams of that rank to the job's groups were not heard: %v", unheard)
		}
	})
}

// Rounds of a communicator that an agreement made begin after its groups are joined, and not before.
func TestRoundsWaitForGroups(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, all := groupEngines(t, nil, nil, 0)
		n.gate = make(chan struct{})
		agreed := make([]*node.Agreed, len(all))
		var wg sync.WaitGroup
		for r, e := range all {
			wg.Go(func() {
				var err error
				if agreed[r], err = e.Agree(t.Context(), FirstComm, FirstComm+1+uint32(r)); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if t.Failed() {
			t.FailNow()
		}
		var reqs []*Request
		for r, e := range all {
			q, err := e.Start(agreed[r].ID, Call{Kind: wire.Broadcast, Algo: Multicast, Recv: make([]byte, 1000)})
			if err != nil {
				t.Fatal(err)
			}
			reqs = append(reqs, q)
		}
		synctest.Wait()
		for r, e := range all {
			if reqs[r].Over() || e.Stats().McastChunks > 0 {
				t.Errorf("rank %d did not wait for its groups", r)
			}
		}
		close(n.gate)
		for r, q := range reqs {
			if <-q.Done(); q.Err() != nil {
				t.Errorf("rank %d: %v", r, q.Err())
			}
			all[r].AwaitGroups(agreed[r].ID)
			if n.mu.Lock(); !slices.Contains(n.groups[agreed[r].ID], r) {
				t.Errorf("rank %d is not in the groups", r)
			}
			n.mu.Unlock()
		}
	})
}
