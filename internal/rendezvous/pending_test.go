package rendezvous

import (
	"net"
	"testing"

	"github.com/allcast/allcast/internal/settings"
)

// enterPipe lets a connection enter a gate, and returns its near end.
func enterPipe(t *testing.T, g *gate) net.Conn {
	t.Helper()
	near, far := net.Pipe()
	t.Cleanup(func() { _, _ = near.Close(), far.Close() })
	if !g.enter(far) {
		t.Fatal("the gate is closed")
	}
	return far
}

// All ranks of a large job may connect at once, beside strangers. None of them is evicted.
func TestGateHasRoomForAllRanks(t *testing.T) {
	const size = 3 * maxStrangers
	g := &gate{cfg: &Config{Job: settings.Job{Size: size}}}
	for range size + maxStrangers {
		enterPipe(t, g)
	}
	if g.strangers != 0 || len(g.pending.all) != size+maxStrangers {
		t.Errorf("%d of %d connections were evicted", g.strangers, size+maxStrangers)
	}
}

// A full gate evicts the connection that is furthest from a hello: not one that has proved the key, nor one that has
// sent something lately.
func TestGateEvictsTheLeastAdvanced(t *testing.T) {
	g := &gate{cfg: &Config{Job: settings.Job{Size: 4}}}
	var conns []net.Conn
	for range maxStrangers + 4 {
		conns = append(conns, enterPipe(t, g))
	}
	proved, talks, silent := conns[0], conns[1], conns[2:]
	g.progress(proved, true)
	g.progress(talks, false)
	for i, c := range silent {
		enterPipe(t, g)
		if g.pending.all[c] != nil {
			t.Fatalf("silent connection %d stays, although it is the oldest", i)
		}
	}
	if g.pending.all[proved] == nil || g.pending.all[talks] == nil {
		t.Error("a connection was evicted that had come further than silent ones")
	}
	for range 2 * len(conns) {
		enterPipe(t, g)
	}
	if g.pending.all[proved] == nil || g.pending.all[talks] != nil {
		t.Error("want the one that has proved the key to stay, and the idle one to be evicted")
	}
	if g.leave(talks) || !g.leave(proved) {
		t.Error("an evicted connection leaves, or a pending one does not")
	}
}
