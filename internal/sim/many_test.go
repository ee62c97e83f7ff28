package sim

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/allcast/allcast/internal/mcast"
	"github.com/allcast/allcast/internal/wire"
)

// manyShare is the divisor of -seeds for random worlds with several communicators.
const manyShare = 4

// TestManyAtOnce runs several operations on several overlapping communicators concurrently. They start
// at different times on different ranks, with few slots, so that slots are reused, and with every fault
// of TestRandom.
func TestManyAtOnce(t *testing.T) {
	t.Parallel()
	if *seed != 0 {
		if msg := manyAtOnce(*seed); msg != "" {
			t.Fatal(msg)
		}
		return
	}
	for s := uint64(1); s <= fewer(uint64(*seeds/manyShare)); s++ {
		if msg := manyAtOnce(s); msg != "" {
			t.Fatalf("seed %d: %s\nreplay: go test ./internal/sim -run TestManyAtOnce -seed %d", s, msg, s)
		}
	}
}

func manyAtOnce(s uint64) string {
	r := rand.New(rand.NewPCG(s, 0x3a17))
	cfg := randomConfig(s)
	cfg.Op, cfg.Counts, cfg.Root = "allgather", nil, 0
	cfg.PSNBits = []int{0, 12, 29, 30, 31}[r.IntN(5)] // 256, 1024, 8, 4 and 2 slots
	if r.IntN(3) > 0 {
		cfg.Crashes = nil
	}
	cfg, _, err := cfg.complete()
	if err != nil {
		return err.Error()
	}
	w, err := newWorld(cfg)
	if err != nil {
		return err.Error()
	}
	var calls []*collective
	req := uint64(0)
	for id := range uint32(1 + r.IntN(4)) {
		members := r.Perm(cfg.Topology.Hosts)[:1+r.IntN(cfg.Topology.Hosts)]
		for _, m := range members {
			if err := w.hosts[m].node.AddComm(id, members); err != nil {
				return err.Error()
			}
		}
		for range 1 + r.IntN(6) {
			req++
			shape := randomShape(r, len(members), &cfg)
			plan, err := mcast.Plan(shape, w.layout)
			if err != nil {
				return err.Error()
			}
			c := multicastCall(req, id, members, plan, shape, r.IntN(2) == 0, s)
			calls = append(calls, c)
			// Ranks make their calls at different times, but in the same order.
			late := r.Int64N(20e6)
			w.call(c, func(rank int) int64 { return int64(req)*10e6 + int64(rank)*late%20e6 })
		}
	}
	sortStarts(w)
	w.schedule()
	w.loop(w.limit())
	return judge(w, calls)
}

// multicastCall returns a multicast call with buffers.
func multicastCall(
	req uint64, comm uint32, members []int, plan []*mcast.Geometry, s mcast.Shape, inPlace bool, seed uint64,
) *collective {
	c := newCollective(req, comm, members, s, seed)
	c.plan = plan
	c.allocate(inPlace)
	return c
}

// sortStarts puts each rank's calls on a communicator into call order.
func sortStarts(w *world) {
	last := map[[2]int]int64{}
	for i := range w.starts {
		st := &w.starts[i]
		key := [2]int{st.host, int(st.c.comm)}
		st.at = max(st.at, last[key]+1)
		last[key] = st.at
	}
	w.eventQueue = newEventQueue()
	for i, st := range w.starts {
		w.push(st.at, evStart, int32(i), nil)
	}
}

func randomShape(r *rand.Rand, p int, cfg *Config) mcast.Shape {
	s := mcast.Shape{
		Kind: wire.Allgather, Counts: make([]int64, p), Chunk: cfg.Chunk,
		Chains: 1 + r.IntN(p), Subgroups: 1 + r.IntN(4), Streams: r.IntN(p + 1),
	}
	if r.IntN(2) == 0 {
		s.Kind, s.Root = wire.Broadcast, r.IntN(p)
		s.Counts[s.Root] = int64(r.IntN(40 * s.Chunk))
		return s
	}
	for i := range s.Counts {
		s.Counts[i] = int64(r.IntN(10 * s.Chunk))
	}
	return s
}

// repaired returns the number of chunks that all ranks have fetched.
func (w *world) repaired() (n int64) {
	for _, h := range w.hosts {
		n += int64(h.node.Stats().Repaired)
	}
	return n
}

// toReceive returns the number of chunks that multicast has to deliver, over all ranks.
func toReceive(calls []*collective) (n int64) {
	for _, c := range calls {
		if c.plan != nil {
			n += c.toReceive()
		}
	}
	return n
}

// judge describes what is wrong with the ends of the calls, or returns "".
func judge(w *world, calls []*collective) string {
	dead := map[int]bool{}
	for _, h := range w.hosts {
		dead[h.id] = h.dead
	}
	switch {
	case w.violation != "":
		return w.violation
	case w.wrong > 0:
		return fmt.Sprintf("wrong data on %d ranks", w.wrong)
	}
	for _, c := range calls {
		hurt := false
		for _, m := range c.members {
			hurt = hurt || dead[m]
		}
		for i, o := range c.ranks {
			switch {
			case dead[c.members[i]]:
			case !o.ended:
				return fmt.Sprintf("call %d on communicator %d never ended on rank %d", c.req, c.comm, i)
			case o.err != nil && !hurt:
				return fmt.Sprintf("call %d on communicator %d failed, but all its members live: %v",
					c.req, c.comm, o.err)
			case o.err != nil && !dead[o.err.Culprit]:
				return fmt.Sprintf("call %d: rank %d blames a rank that lives: %v", c.req, i, o.err)
			}
			if o.ended && !c.mem[i].intact() {
				return fmt.Sprintf("call %d: rank %d's buffers were touched after they were free", c.req, i)
			}
		}
	}
	if msg := needless(&w.cfg, w.dropped, w.repaired(), toReceive(calls)); msg != "" {
		return msg
	}
	if w.failures == 0 && w.lingering > 0 {
		return fmt.Sprintf("%d operations lingered for ever", w.lingering)
	}
	return ""
}
