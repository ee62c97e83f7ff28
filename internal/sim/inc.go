package sim

import (
	"fmt"
	"strings"
	"time"

	"github.com/allcast/allcast/internal/inc"
	"github.com/allcast/allcast/internal/topology"
)

// incTree is the tree of aggregators: the switches of a multicast tree, each with an aggregator. It uses a
// different top than multicast if there is one.
type incTree struct {
	*inc.Tree
	nodes   []aggregator // as in Tree.Nodes
	at      []int        // by switch: index of its aggregator
	window  uint32
	digest  uint64
	payload int // size of a chunk in memory
}

// aggregator is one of the tree's aggregators.
type aggregator struct {
	session *inc.Session
	at      topology.NodeID
	up      topology.LinkID // link to the parent; NoLink at the top
	dead    bool
	stopped bool
	queue   []*packet // contributions that arrived while it was stopped
}

// useAggregators creates the tree of aggregators for reductions like c.
func (w *world) useAggregators(c *collective) (err error) {
	payload := tagSize
	if c.move {
		payload = int(c.chunk)
	}
	if w.inc == nil || w.inc.payload < payload {
		if w.inc, err = newIncTree(w.g, payload); err != nil {
			return err
		}
		for _, h := range w.hosts {
			h.node.SetAggregation(ns(w.now), w.inc.aggregation())
		}
	}
	c.tree = w.inc.Tree
	return nil
}

// AggregationTree returns the tree whose switches have an aggregator each. Its top is another one than those of the
// first multicast trees, if there are enough.
func AggregationTree(g *topology.Graph) *topology.Tree { return g.Tree(g.Trees() - 1) }

// newIncTree places an aggregator at every switch of the tree. Their order in Tree.Nodes is by level, leaves
// first.
func newIncTree(g *topology.Graph, payload int) (*incTree, error) {
	t := &incTree{at: make([]int, g.Nodes()), window: inc.WantedWindow(g.Hosts), payload: payload}
	ports := AggregationTree(g)
	name := func(n topology.NodeID) string { return fmt.Sprintf("%s:1", g.NodeName(n)) }
	var text []string
	for n := topology.NodeID(g.Hosts); int(n) < g.Nodes(); n++ {
		a := aggregator{at: n, up: topology.NoLink}
		var ranks []string
		for _, p := range ports.Ports[n] {
			switch peer := g.Links[p].To; {
			case g.IsHost(peer):
				ranks = append(ranks, fmt.Sprint(peer))
			case g.Level(peer) > g.Level(n):
				a.up = p
			}
		}
		if len(ports.Ports[n]) == 0 && n != ports.Top {
			continue // not in the tree
		}
		if g.Hosts == 1 {
			ranks = []string{"0"} // the tree has no links
		}
		spec := name(n)
		if len(ranks) > 0 {
			spec += "=" + strings.Join(ranks, ",")
		}
		if a.up != topology.NoLink {
			spec += ">" + name(g.Links[a.up].To)
		}
		t.at[n] = len(t.nodes)
		t.nodes, text = append(t.nodes, a), append(text, spec)
	}
	var err error
	if t.Tree, err = inc.ParseTree(strings.Join(text, ";"), g.Hosts); err != nil {
		return nil, fmt.Errorf("reduction tree of %s: %w", g.Name, err)
	}
	t.digest = t.Digest()
	for i := range t.nodes {
		t.nodes[i].session = t.newSession(i)
	}
	return t, nil
}

// incComms is the number of communicators that have slots at an aggregator.
const incComms = 64

func (t *incTree) newSession(node int) *inc.Session {
	return inc.NewSession(inc.SessionConfig{
		Tree: t.Tree, Node: node, Window: t.window, Chunk: t.payload, Token: incToken, Add: addElements, Comms: incComms,
	})
}

// Types of elements, in the headers of contributions.
const (
	typeByte uint8 = iota
	typeFloat32
)

// addElements adds src to dst.
func addElements(dst, src []byte, typ, _ uint8) error {
	if typ == typeFloat32 {
		addFloats(dst, dst, src)
	} else {
		addBytes(dst, dst, src)
	}
	return nil
}

// incAlign is the size of the largest element. Chunks of a reduction consist of whole elements.
const incAlign = 8

// incToken returns the token of an operation.
func incToken(comm, number uint32) uint64 { return uint64(comm)<<32 | uint64(number) + 1 }

// aggregation returns what ranks know about the aggregators.
func (t *incTree) aggregation() inc.Aggregation {
	for i := range t.nodes {
		if t.nodes[i].dead {
			return inc.Aggregation{Why: fmt.Sprintf("no connection to aggregator %d (%s)", i, t.Nodes[i].Addr)}
		}
	}
	return inc.Aggregation{Window: t.window}
}

// aggregate handles a contribution that arrives at a switch: it may be lost, duplicated or delayed there.
func (w *world) aggregate(n topology.NodeID, k *packet) {
	id := int32(w.inc.at[n])
	w.disturb(k, evSum, id, func() { w.contribute(id, k) })
}

// contribute hands a contribution to an aggregator, and sends what the aggregator answers with.
func (w *world) contribute(id int32, k *packet) {
	a := &w.inc.nodes[id]
	switch {
	case a.dead:
		w.dropped++
		w.pools.release(k)
		return
	case a.stopped:
		a.queue = append(a.queue, k)
		return
	}
	if f, ok := a.session.Contribute(&k.head, k.data); ok {
		p := w.pools.packet(pktSum, classBulk, k.opKey, k.src, -1)
		p.head, p.bytes, p.size, p.born = f.Header, int(k.all), k.all+sumHeader, w.now
		p.data = append(p.data, f.Payload...)
		out := a.up
		switch f.Kind {
		case inc.Result:
			p.kind, p.dst = pktResult, int(f.Owner)
			out = w.g.Next(a.at, p.dst, p.src)
		case inc.Want:
			p.kind, p.dst, p.bytes, p.size = pktWant, k.src, 0, sumHeader
			out = w.g.Next(a.at, p.dst, p.src)
		}
		p.all = k.all
		w.enqueue(&w.links[out], p, nil)
	}
	w.pools.release(k)
}

// aggregatorSilence is the time after which the ranks notice that an aggregator no longer sends heartbeats.
const aggregatorSilence = 10 * time.Second

// What happens to an aggregator. An event of Faults.Aggregators[i] has number i*aggregatorEvents and one of these.
const (
	aggregatorFails = iota
	aggregatorMissed
	aggregatorReturns
	aggregatorEvents
)

// scheduleAggregators schedules the faults of aggregators.
func (w *world) scheduleAggregators() {
	for i, f := range w.cfg.Aggregators {
		at := func(t time.Duration, what int) {
			w.push(t.Nanoseconds()*1000, evAggregator, int32(i*aggregatorEvents+what), nil)
		}
		at(f.At, aggregatorFails)
		switch {
		case f.For > 0:
			at(f.At+f.For, aggregatorReturns)
		case !f.Reset:
			at(f.At+aggregatorSilence, aggregatorMissed)
		}
	}
}

// handleAggregator handles evAggregator.
func (w *world) handleAggregator(event int) {
	if w.inc == nil {
		return
	}
	f := w.cfg.Aggregators[event/aggregatorEvents]
	a := &w.inc.nodes[f.Node]
	queue := a.queue
	switch event % aggregatorEvents {
	case aggregatorFails:
		a.dead, a.stopped = a.dead || f.Crash, true
		if f.Crash {
			w.pools.releaseAll(queue)
			a.queue = nil
		}
		if f.Reset {
			w.tellAggregation()
		}
	case aggregatorMissed:
		w.tellAggregation()
	case aggregatorReturns:
		if a.dead {
			a.session = w.inc.newSession(f.Node) // it has lost its slots
		}
		a.dead, a.stopped, a.queue = false, false, nil
		for _, k := range queue {
			w.contribute(int32(f.Node), k)
		}
		w.tellAggregation()
	}
}

// tellAggregation tells all ranks the state of the aggregators.
func (w *world) tellAggregation() {
	for _, h := range w.hosts {
		if !h.dead {
			h.catchUp()
			h.node.SetAggregation(ns(w.now), w.inc.aggregation())
			h.act()
		}
	}
}
