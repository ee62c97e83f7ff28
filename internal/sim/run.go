package sim

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/allcast/allcast/internal/mcast"
	"github.com/allcast/allcast/internal/p2p"
	"github.com/allcast/allcast/internal/wire"
)

// Run simulates one collective. It returns an error for an invalid Config. The Result says how the
// collective itself ended.
func Run(cfg Config) (*Result, error) {
	startTime := time.Now()
	cfg, parts, err := cfg.complete()
	if err != nil {
		return nil, err
	}
	w, err := newWorld(cfg)
	if err != nil {
		return nil, err
	}
	members := allHosts(cfg.Topology.Hosts)
	if err := w.addComm(0, members); err != nil {
		return nil, err
	}
	var calls []*collective
	for i, p := range parts {
		c, err := w.collective(uint64(i+1), p, members)
		if err != nil {
			return nil, badConfig("%w", err)
		}
		calls = append(calls, c)
		w.call(c, func(int) int64 { return 0 })
	}
	if len(calls) == 1 {
		cells := calls[0].chunks()
		w.crossings = newCrossings(len(w.g.Links), cells)
		w.ownerReads = make([]uint16, cells)
	}
	w.schedule()
	w.loop(w.limit())
	if w.pcap != nil {
		if err := w.pcap.Close(); err != nil {
			return nil, fmt.Errorf("writing the capture: %w", err)
		}
	}
	r := w.result(calls)
	r.WallMS = float64(time.Since(startTime).Microseconds()) / 1000
	return r, nil
}

// addComm creates a communicator.
func (w *world) addComm(id uint32, members []int) error {
	for _, m := range members {
		if err := w.hosts[m].node.AddComm(id, members); err != nil {
			return err
		}
	}
	return nil
}

// allHosts returns the members of a communicator of n hosts in order.
func allHosts(n int) []int {
	all := make([]int, n)
	for i := range all {
		all[i] = i
	}
	return all
}

// part is one of several concurrent collectives.
type part struct {
	algo  string
	shape mcast.Shape
}

// collective prepares a call.
func (w *world) collective(req uint64, p part, members []int) (*collective, error) {
	n := len(members)
	if p.algo == "inc" {
		p.shape.Chunk = (p.shape.Chunk + incAlign - 1) / incAlign * incAlign
	}
	c := newCollective(req, 0, members, p.shape, cmp.Or(w.cfg.dataSeed, w.cfg.Seed))
	c.exchange = newExchange(p.shape.Kind, n, p.shape.Root, w.cfg.Bytes, c.seed)
	c.tags, c.floats = w.cfg.tags, w.cfg.floats
	var err error
	switch {
	case p.algo == "mcast":
		p.shape.Eager = w.eagerChunks
		c.plan, err = mcast.Plan(p.shape, w.layout)
	case p.algo == "inc":
		if n != w.g.Hosts {
			err = badConfig("aggregators reduce for all hosts, not for %d of %d", n, w.g.Hosts)
		}
		if c.kind == wire.Allreduce {
			err = errors.Join(err, w.splitAllreduce(c, p.shape))
		}
	case c.kind != wire.Send:
		c.packed = p.algo == "pat"
		c.plans = make([]*p2p.Plan, n)
		for rank := range n {
			spec := p2p.Spec{
				Kind: p.shape.Kind, Rank: rank, Size: n, Root: p.shape.Root, Bytes: w.cfg.Bytes, Counts: p.shape.Counts,
				Radix: w.cfg.Radix, Segment: w.cfg.Segment, Align: int64(w.cfg.Chunk),
			}
			if c.exchange != nil {
				spec.Counts, spec.Receives = c.exchange.known(rank)
			}
			if w.cfg.Plan != nil {
				c.plans[rank], err = w.cfg.Plan(spec)
			} else {
				c.plans[rank], err = p2p.New(p.algo, spec)
			}
			if err != nil {
				break
			}
		}
	}
	if err != nil {
		return nil, err
	}
	c.allocate(w.cfg.InPlace)
	if p.algo == "inc" {
		err = w.useAggregators(c)
	}
	return c, err
}

// splitAllreduce cuts the buffer of an Allreduce by aggregators into blocks of whole chunks, and plans the Allgather
// of their sums.
func (w *world) splitAllreduce(c *collective, s mcast.Shape) (err error) {
	n := int64(len(c.members))
	total, chunks := c.total(), int64(c.chunks())
	s.Counts = make([]int64, n)
	for i := range n {
		s.Counts[i] = min((i+1)*chunks/n*c.chunk, total) - i*chunks/n*c.chunk
	}
	s.Kind, s.Root, s.Chains = wire.Allgather, 0, int(n)
	c.blocks = newBlocks(s.Counts, c.chunk, false)
	c.then, err = mcast.Plan(s, w.layout)
	return err
}

// schedule schedules the configured faults.
func (w *world) schedule() {
	for i, s := range w.cfg.Stalls {
		w.push(s.At.Nanoseconds()*1000, evStall, int32(i), nil)
	}
	if w.cfg.Detour > 0 {
		for i := range w.hosts {
			w.push(w.untilDetour(), evDetour, int32(i), nil)
		}
	}
	for i, c := range w.cfg.Crashes {
		w.push(c.At.Nanoseconds()*1000, evCrash, int32(i), nil)
	}
	w.scheduleAggregators()
}

// limit returns the virtual time at which an unfinished run is abandoned. It is far beyond every timeout
// that the run may have to wait for.
func (w *world) limit() int64 {
	t := 20*w.cfg.Timeout + 4*w.cfg.Deadline + time.Hour
	for _, s := range w.cfg.Stalls {
		t += s.At + s.For
	}
	for _, c := range w.cfg.Crashes {
		t += c.At
	}
	return t.Nanoseconds() * 1000
}
