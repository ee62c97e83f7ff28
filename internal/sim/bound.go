package sim

import (
	"math"

	"github.com/allcast/allcast/internal/topology"
	"github.com/allcast/allcast/internal/wire"
)

// bound returns a lower bound of the time in microseconds, for any algorithm: the busiest port of a host, or the
// busiest links up from a rack or a pod if they take longer, and the latency of a path.
func (w *world) bound(calls []*collective) float64 {
	port := 0.0
	for i, s := range w.g.Groups() {
		load := busiestGroup(calls, s, i == 0, true)
		port = max(port, float64(load)*8e6/(w.cfg.Rate*s.Multiple))
	}
	x := calls[0].exchange
	if x == nil {
		return port + microseconds(w.path)
	}
	nearest, furthest := math.MaxInt, 0
	x.forEachCrossing(func(from, to int, _ int64) {
		hops := w.g.Hops(from, to)
		nearest, furthest = min(nearest, hops), max(furthest, hops)
	})
	latency := func(hops int) float64 { return float64(hops) * float64(w.cfg.Latency.Nanoseconds()) / 1e3 }
	switch {
	case furthest == 0:
		return 0
	case x.kind == wire.Send:
		return port + latency(2*furthest) // there and back
	}
	// Blocks of near ranks arrive while those of far ranks are on their way.
	return max(port+latency(nearest), latency(furthest))
}

// lineTime returns the time in microseconds that a host link needs for the payload that the busiest rank must send or
// receive.
func (w *world) lineTime(calls []*collective) float64 {
	groups := w.g.Groups()
	if len(groups) == 0 {
		return 0
	}
	return float64(busiestGroup(calls, groups[0], true, false)) * 8e6 / w.cfg.Rate
}

// load counts bytes that must leave a group of hosts, and bytes that must enter it.
type load struct{ out, in int64 }

// busiestGroup returns the larger load of the busiest group with concurrent collectives of all hosts. It bounds the
// time from below: at best, ranks and switches forward data so that it crosses the links of a group once.
func busiestGroup(calls []*collective, s topology.Groups, hosts, headers bool) (busiest int64) {
	sum := make([]load, s.Count)
	for _, c := range calls {
		for i, l := range c.loads(s, hosts, headers) {
			sum[i].out += l.out
			sum[i].in += l.in
		}
	}
	for _, l := range sum {
		busiest = max(busiest, l.out, l.in)
	}
	return busiest
}

// loads returns the loads of groups, with or without headers. Groups send their own blocks and receive the others; in a
// reduction it is the reverse.
func (c *collective) loads(s topology.Groups, hosts, headers bool) []load {
	if c.exchange != nil {
		return c.exchangeLoads(s, hosts, headers)
	}
	loads := make([]load, s.Count)
	own := make([]volume, s.Count)
	var all volume
	for i := range c.counts {
		v := volume{c.displs[i+1] - c.displs[i], int64(c.cells[i+1] - c.cells[i])}
		own[s.Of[i]].add(v)
		all.add(v)
	}
	total := c.size(all, headers)
	for i := range loads {
		mine := c.size(own[i], headers)
		switch {
		case c.kind == wire.Allreduce && c.byNetwork():
			loads[i] = load{total, total} // reduced, or gathered
		case c.kind == wire.Allreduce:
			n := 2 * total * int64(s.Count-1) / int64(s.Count)
			loads[i] = load{n, n}
		case c.reduces:
			loads[i] = load{total - mine, mine}
		default:
			loads[i] = load{mine, total - mine}
		}
	}
	return loads
}

// exchangeLoads returns the loads of an exchange.
func (c *collective) exchangeLoads(s topology.Groups, hosts, headers bool) []load {
	loads := make([]load, s.Count)
	c.exchange.forEachCrossing(func(from, to int, n int64) {
		if a, b := s.Of[from], s.Of[to]; a != b {
			loads[a].out += n
			loads[b].in += n
		}
	})
	for i, l := range loads {
		if headers {
			l = load{c.packedSize(l.out), c.packedSize(l.in)}
		}
		if hosts && c.kind == wire.Send {
			l.out += l.in // one after the other
		}
		loads[i] = l
	}
	return loads
}

// volume is an amount of data.
type volume struct{ bytes, chunks int64 }

func (v *volume) add(o volume) {
	v.bytes += o.bytes
	v.chunks += o.chunks
}

// size returns the size of blocks on a link, with or without headers.
func (c *collective) size(v volume, headers bool) int64 {
	header := int64(putHeader)
	switch {
	case !headers:
		return v.bytes
	case c.packed:
		return c.packedSize(v.bytes)
	case c.plan != nil:
		header = udHeader
	case c.byNetwork():
		header = sumHeader
	}
	return v.bytes + v.chunks*header
}

// packedSize returns the size of n bytes on a link, in as few packets as possible.
func (c *collective) packedSize(n int64) int64 { return n + (n+c.chunk-1)/c.chunk*putHeader }
