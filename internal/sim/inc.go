package sim

import (
	"slices"
	"sort"

	"github.com/allcast/allcast/internal/node"
	"github.com/allcast/allcast/internal/topology"
)

// aggregators is the number of chunks that a switch sums at a time.
const aggregators = 64

// incTree is the reduction tree: the ports of a multicast tree with a direction. It uses a different
// top than multicast if there is one.
type incTree struct {
	tree       *topology.Tree
	up         []topology.LinkID       // by node: link towards the top; NoLink at the top
	children   []int                   // by switch: number of ports that lead down
	lone       [][]int                 // by host: switches above it whose port towards it leads to no other host
	nodes      []map[opKey]*aggregator // by switch
	reductions map[opKey]*collective   // open rounds
}

// chunkOrder is the order in which ranks send the chunks of a reduction up.
type chunkOrder struct {
	turn   []int // by chunk: its turn
	inTurn []int // by turn: its chunk
}

// aggregator is the part of a switch that sums one reduction. All ranks send in the same order, each
// without its own block. The aggregator therefore accepts only chunks of a window, which starts at the
// first chunk that it has not passed on. Chunks beyond the window wait at their host or in the switch
// below, not in a buffer of the link.
//
// A rank that runs ahead can therefore not take the buffers that slower ranks need: the first chunk of
// the window is accepted from every rank. Nor can it take buffers of other reductions, because each
// reduction has its own window. Any number of reductions progress at once, in whatever order ranks
// started them.
type aggregator struct {
	base   int              // turn of the first chunk that has not been passed on
	sums   map[int]*sum     // by chunk
	passed map[int]bool     // by turn: chunks beyond base that have been passed on
	wait   map[int][]parked // by turn: packets beyond the window
	ready  map[int]bool     // at the top, by owner: whether it has sent its first chunk
	early  map[int][]int    // at the top, by owner: chunks summed before that
}

// parked is a packet that waits until the switch at the other end of a link accepts it.
type parked struct {
	l *link
	k *packet
	h *hop
}

// sum is a chunk under summation.
type sum struct {
	pkt  *packet
	have int
}

func newIncTree(g *topology.Graph) *incTree {
	t := &incTree{
		tree: g.Tree(g.Trees() - 1), up: make([]topology.LinkID, g.Nodes()), children: make([]int, g.Nodes()),
		lone: make([][]int, g.Hosts), nodes: make([]map[opKey]*aggregator, g.Nodes()),
		reductions: map[opKey]*collective{},
	}
	hosts := make([]int, g.Nodes())
	var walk func(n topology.NodeID, up topology.LinkID)
	walk = func(n topology.NodeID, up topology.LinkID) {
		t.up[n] = up
		if g.IsHost(n) {
			hosts[n] = 1
			return
		}
		for _, p := range t.tree.Ports[n] {
			if p != up {
				child := g.Links[p].To
				walk(child, g.Reverse(p))
				hosts[n] += hosts[child]
				t.children[n]++
			}
		}
	}
	walk(t.tree.Top, topology.NoLink)
	for h := range g.Hosts {
		for n := topology.NodeID(h); hosts[n] == 1 && t.up[n] != topology.NoLink; {
			n = g.Links[t.up[n]].To
			t.lone[h] = append(t.lone[h], int(n))
		}
	}
	for i := range t.nodes {
		t.nodes[i] = map[opKey]*aggregator{}
	}
	return t
}

// expects returns the number of contributions to a chunk of owner's block that a switch receives. The
// owner contributes only to the first chunk.
func (t *incTree) expects(n topology.NodeID, owner int, first bool) int {
	if owner >= 0 && !first && slices.Contains(t.lone[owner], int(n)) {
		return t.children[n] - 1
	}
	return t.children[n]
}

// reduce sends a range up the tree. An empty range reports that this host is ready to receive the
// block that starts there.
func (h *host) reduce(a *node.Action) {
	h.packetize(a, pktSum, func(k *packet, c *collective) {
		k.all = c.chunkEnd(k.off) - k.off // length of the chunk, also if this host's contribution is empty
		h.w.sendUp(&h.w.links[h.w.g.HostUp(h.id)], k, nil)
	})
}

// sendUp puts a chunk on a link towards the top once the switch at the other end accepts it.
func (w *world) sendUp(l *link, k *packet, h *hop) {
	c, a := w.inc.reductions[k.opKey], w.aggregator(l.to, k.opKey)
	if turn := c.order.turn[c.cell(k.off)]; turn >= a.base+aggregators {
		a.wait[turn] = append(a.wait[turn], parked{l, k, h})
		return
	}
	w.enqueue(l, k, h)
}

func (w *world) aggregator(n topology.NodeID, key opKey) *aggregator {
	a := w.inc.nodes[n][key]
	if a == nil {
		a = &aggregator{
			sums: map[int]*sum{}, passed: map[int]bool{}, wait: map[int][]parked{},
			ready: map[int]bool{}, early: map[int][]int{},
		}
		w.inc.nodes[n][key] = a
		w.advance(n, a, w.inc.reductions[key])
	}
	return a
}

// aggregate handles a chunk that arrives at a switch on its way up.
func (w *world) aggregate(n topology.NodeID, k *packet, h *hop) {
	w.add(n, w.aggregator(n, k.opKey), w.inc.reductions[k.opKey], k)
	w.leave(k, h)
	w.pools.release(k)
}

// advance moves the window past chunks that never reach this switch: those whose owner is the only
// rank below it.
func (w *world) advance(n topology.NodeID, a *aggregator, c *collective) {
	for a.base < len(c.order.inTurn) {
		if owner, first := c.ownerOf(c.order.inTurn[a.base]); w.inc.expects(n, owner, first) > 0 {
			return
		}
		a.base++
	}
}

// newChunkOrder takes the same chunk of every block in turn.
func newChunkOrder(b *blocks) *chunkOrder {
	n := b.chunks()
	o := &chunkOrder{turn: make([]int, n), inTurn: make([]int, 0, n)}
	for at := 0; len(o.inTurn) < n; at++ {
		for i := range b.counts {
			if cell := b.cells[i] + at; cell < b.cells[i+1] {
				o.turn[cell] = len(o.inTurn)
				o.inTurn = append(o.inTurn, cell)
			}
		}
	}
	return o
}

// ownerOf returns the owner of a chunk, or -1 if all ranks receive it, and whether it is the first of
// its block.
func (c *collective) ownerOf(cell int) (owner int, first bool) {
	if !c.scatters {
		return -1, false
	}
	owner = sort.Search(len(c.counts), func(i int) bool { return c.cells[i+1] > cell })
	return owner, cell == c.cells[owner]
}

// add adds a contribution and passes the sum on when it is complete.
func (w *world) add(n topology.NodeID, a *aggregator, c *collective, k *packet) {
	cell := c.cell(k.off)
	s := a.sums[cell]
	if s == nil {
		p := w.pools.packet(pktSum, classBulk, k.opKey, k.src, -1)
		p.off, p.all, p.bytes = k.off, k.all, int(k.all)
		p.size = k.all + putHeader
		p.data = append(p.data, make([]byte, c.pos(k.off+k.all)-c.pos(k.off))...)
		s = &sum{pkt: p}
		a.sums[cell] = s
	}
	addBytes(s.pkt.data, s.pkt.data, k.data)
	s.have++
	if owner, first := c.ownerOf(cell); s.have == w.inc.expects(n, owner, first) {
		w.passSum(n, a, cell, owner, first)
	}
}

// passSum sends a complete sum up. The top sends it to the owner once the owner is ready. The sum's
// buffer becomes free when it leaves.
func (w *world) passSum(n topology.NodeID, a *aggregator, cell, owner int, first bool) {
	p := a.sums[cell].pkt
	if up := w.inc.up[n]; up != topology.NoLink {
		w.sendUp(&w.links[up], p, w.pools.sumHop(n, cell, 1))
		return
	}
	if owner >= 0 && !first && !a.ready[owner] {
		a.early[owner] = append(a.early[owner], cell)
		return
	}
	p.kind = pktResult
	if owner >= 0 {
		p.dst = owner
		w.enqueue(&w.links[w.g.Next(n, owner, p.src)], p, w.pools.sumHop(n, cell, 1))
		a.ready[owner] = true
		early := a.early[owner]
		delete(a.early, owner)
		for _, e := range early {
			w.passSum(n, a, e, owner, false)
		}
		return
	}
	p.tree = w.inc.tree
	out := p.tree.Ports[n]
	h := w.pools.sumHop(n, cell, len(out))
	p.refs += len(out) - 1
	for _, l := range out {
		w.enqueue(&w.links[l], p, h)
	}
}

// freeSum frees the buffer of a sum that has left, and admits waiting chunks.
func (w *world) freeSum(n topology.NodeID, key opKey, cell int) {
	a, c := w.inc.nodes[n][key], w.inc.reductions[key]
	delete(a.sums, cell)
	a.passed[c.order.turn[cell]] = true
	oldBase := a.base
	for a.passed[a.base] {
		delete(a.passed, a.base)
		a.base++
		w.advance(n, a, c)
	}
	for in := oldBase + aggregators; in < a.base+aggregators; in++ {
		waiting := a.wait[in]
		delete(a.wait, in)
		for _, x := range waiting {
			w.enqueue(x.l, x.k, x.h)
		}
	}
}

// result handles a sum that arrived at its host.
func (h *host) result(k *packet) {
	ok := h.node.Result(ns(h.w.now), k.comm, k.seq, k.off, int64(k.bytes))
	r := h.region(k.opKey)
	switch {
	case ok && r != nil && r.open:
		r.countReceived(k)
		mode := put
		if r.mem.c.scatters {
			mode = add
		}
		r.mem.place(k.off, k.data, mode)
	case ok:
		h.w.violate("rank %d got a sum after its buffers were free", h.id)
	}
	h.w.pools.release(k)
	h.act()
}
