package sim

import (
	"testing"
	"time"

	"github.com/allcast/allcast/internal/wire"
)

// When a communicator breaks, its operations' packets in a NIC's queue are dropped. Other packets in
// that queue must not have to wait for an event that wakes the link.
func TestDroppedPacketsDoNotStopTheLink(t *testing.T) {
	cfg := base(t, "allgather", "star:4", 0)
	cfg.Queue = 1 << 20 // a switch that drops does not wake links when it has room
	cfg.Crashes = []Crash{{Rank: 3, At: 20 * time.Microsecond, Reset: true}}
	w, _ := mustWorld(t, cfg)
	var calls []*collective
	for id, members := range [][]int{allHosts(4), allHosts(3)} {
		for _, m := range members {
			if err := w.hosts[m].node.AddComm(uint32(id), members); err != nil {
				t.Fatal(err)
			}
		}
		shape := equal(len(members), 1<<20, cfg.Chunk)
		shape.Kind = wire.Allgather
		c, err := w.collective(uint64(id+1), part{algo: "linear", shape: shape}, members)
		if err != nil {
			t.Fatal(err)
		}
		c.comm = uint32(id)
		calls = append(calls, c)
		w.call(c, func(int) int64 { return 0 })
	}
	w.schedule()
	w.loop(w.limit())
	if msg := judge(w, calls); msg != "" {
		t.Fatal(msg)
	}
	for r, o := range calls[1].ranks {
		if o.err != nil || o.at > 1e9 {
			t.Errorf("rank %d: %v after %v us", r, o.err, float64(o.at)/1e6)
		}
	}
}

// The bytes by link add up to the total.
func TestBytesByLink(t *testing.T) {
	cfg := base(t, "allgather", "fat-tree:16,4,2", 64<<10)
	g := cfg.Topology
	for _, algo := range []string{"mcast", "ring"} {
		cfg.Algo = algo
		r, err := Run(cfg)
		if err != nil {
			t.Fatal(err)
		}
		var sum uint64
		for _, n := range r.ByLink {
			sum += n
		}
		if len(r.ByLink) != len(g.Links) || sum != uint64(r.LinkBytes) {
			t.Errorf("%s: %d bytes on %d links, want %d on %d", algo, sum, len(r.ByLink), r.LinkBytes, len(g.Links))
		}
		for h := range g.Hosts {
			if n := r.ByLink[g.HostDown(h)]; n < 15*64<<10 {
				t.Errorf("%s: host %d received %d bytes", algo, h, n)
			}
		}
	}
}
