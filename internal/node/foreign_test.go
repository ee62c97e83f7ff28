package node

import (
	"testing"

	"github.com/allcast/allcast/internal/clustertest"
)

// A datagram that is no chunk of an open operation is counted. It is not placed, not answered, and does no
// harm.
func TestForeignChunks(t *testing.T) {
	const p, chunk = 3, 8
	c := world(t, p, patient(testConfig()))
	c.fate = keepOps(0)
	shape := allgather(p, 20, chunk) // 8, 8 and 4 bytes
	shape.Subgroups = 2              // one and two of them
	j := c.call(0, shape)
	c.RunFor(ms)
	layout, h := c.cfg.Layout, c.hosts[1]
	for _, tc := range []struct {
		name   string
		comm   uint32
		sub    int
		imm    uint32
		length int
	}{
		{"another communicator", 1, 0, layout.Imm(0, 0), chunk},
		{"an empty slot", 0, 0, layout.Imm(1, 0), chunk},
		{"the last slot", 0, 0, 1<<32 - 1, chunk},
		{"a subgroup that there is not", 0, 2, layout.Imm(0, 0), chunk},
		{"a subgroup far out", 0, 1 << 40, layout.Imm(0, 0), chunk},
		{"a PSN beyond the subgroup's", 0, 0, layout.Imm(0, p), chunk},
		{"a PSN far out", 0, 1, layout.Imm(0, 1<<24-1), chunk},
		{"too long", 0, 0, layout.Imm(0, 0), chunk + 1},
		{"too short", 0, 0, layout.Imm(0, 0), chunk - 1},
		{"empty", 0, 0, layout.Imm(0, 0), 0},
		{"a full chunk for a short tail", 0, 1, layout.Imm(0, 1), chunk},
		{"a short tail for a full chunk", 0, 1, layout.Imm(0, 0), 4},
	} {
		before := h.counted()
		if h.gets(tc.comm, tc.sub, tc.imm, tc.length) {
			t.Errorf("%s: placed", tc.name)
		}
		if h.act() {
			t.Errorf("%s: caused actions", tc.name)
		}
		if got := h.counted() - before; got != 1 {
			t.Errorf("%s: counted %d times", tc.name, got)
		}
	}
	// A rank has its own chunk.
	if placed := h.gets(0, 0, layout.Imm(0, 1), chunk); placed || h.node.Stats().Duplicates != 1 {
		t.Errorf("our own chunk: placed %v, stats %+v", placed, h.node.Stats())
	}
	c.release(nil)
	c.finish()
	c.allRight(j)
}

// With few PSN bits there are more slots in an immediate than a node has.
func TestChunkWithASlotBeyondTheTable(t *testing.T) {
	c := world(t, 2, psnBits(testConfig(), 4))
	before := c.hosts[0].counted()
	if placed := c.hosts[0].gets(0, 0, 1<<32-1, 1); placed || c.hosts[0].counted() != before+1 {
		t.Errorf("placed %v, counted %d", placed, c.hosts[0].counted()-before)
	}
}

// gets gives a process a datagram of so many bytes, and reports whether it was placed.
func (h *host) gets(comm uint32, sub int, imm uint32, length int) bool {
	placed := h.workers.take(comm, sub, imm, length, nil)
	h.node.Received(h.c.Now, h.workers.sub(sub).Flush(), false)
	return placed
}

// Duplicates, and a datagram that arrives after a read of its chunk has begun.
func TestDuplicateAndLateChunks(t *testing.T) {
	c := world(t, 2, testConfig())
	var copies []datagram
	c.fate = func(_ int, d *datagram) clustertest.Fate {
		copies = append(copies, *d)
		if d.psn == 1 {
			return clustertest.Keep
		}
		return clustertest.Deliver
	}
	c.hosts[1].reads.Held = true
	j := c.call(0, broadcast(2, 0, 12, 4))
	c.Until("a read", func() bool { return c.hosts[1].reads.Len() > 0 }) // claimed
	for i := range copies {
		if c.hosts[1].chunk(&copies[i]) {
			t.Errorf("chunk %d was placed", copies[i].psn)
		}
		c.hosts[1].act()
	}
	if s := c.hosts[1].node.Stats(); s.Duplicates != 2 || s.Late != 1 || s.Repaired != 0 || s.Foreign != 0 ||
		s.Stale != 0 {
		t.Errorf("stats %+v", s)
	}
	c.hosts[1].reads.Held = false
	c.hosts[1].grams.Forget()
	c.finish()
	c.allRight(j)
	if s := c.hosts[1].node.Stats(); s.Duplicates != 2 || s.Late != 1 || s.Repaired != 1 {
		t.Errorf("after the operation: stats %+v", s)
	}
}
