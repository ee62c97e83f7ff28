package sim

import (
	"slices"

	"github.com/allcast/allcast/internal/background"
	"github.com/allcast/allcast/internal/topology"
)

// foreignFlow is traffic of another job. It enters the network at a leaf over a link of its own, at the rate of a host
// link, and leaves it at another leaf.
type foreignFlow struct {
	*background.Flow
	number int32
	route  []topology.LinkID // links between switches
	left   int64             // bytes of the burst that have not been sent
}

// addBackground creates the flows of other jobs. They use no randomness of the world, so a collective meets the same
// bursts whatever else is random.
func (w *world) addBackground() {
	for i, f := range w.cfg.Background.Sources(w.g.Leaves()) {
		route := w.g.LeafRoute(f.From, f.To, i)
		flow := &foreignFlow{Flow: f, number: int32(i), route: route}
		w.foreign = append(w.foreign, flow)
		w.links = append(w.links, link{
			id: topology.LinkID(len(w.links)), to: w.g.Links[route[0]].From, host: -1, psByte: 8e12 / w.cfg.Rate, flow: flow,
		})
		w.pauseForeign(flow)
	}
}

// pauseForeign schedules the next burst of a flow.
func (w *world) pauseForeign(f *foreignFlow) {
	pause, bytes := f.Next(w.cfg.Rate)
	f.left = bytes
	w.push(w.now+pause.Nanoseconds()*1000, evForeign, f.number, nil)
}

// sendForeign sends the next packet of a flow. Flows end with the last call, so that they do not prolong the run. Only
// one packet waits for the link at a time: the next one follows when it has left.
func (w *world) sendForeign(number int32) {
	f := w.foreign[number]
	switch {
	case w.pending == 0:
		return
	case f.left == 0:
		w.pauseForeign(f)
		return
	}
	k := w.pools.packet(pktForeign, classBulk, opKey{}, int(number), -1)
	k.size = min(f.left, int64(w.cfg.Chunk+putHeader))
	f.left -= k.size
	w.enqueue(&w.links[len(w.g.Links)+int(number)], k, nil)
}

// countForeign counts a foreign packet that a link sends, and continues its flow.
func (w *world) countForeign(l *link, k *packet) {
	l.foreign += k.size
	if l.flow != nil {
		w.push(l.until, evForeign, l.flow.number, nil)
	}
}

// forwardForeign handles a foreign packet at the end of a link.
func (w *world) forwardForeign(l *link, k *packet) {
	route, hop := w.foreign[k.src].route, w.pools.hop(l.id, 1)
	next := slices.Index(route, l.id) + 1 // 0 at the first leaf: the flow's own link is not in its route
	if next == len(route) {
		w.leave(k, hop)
		w.pools.release(k)
		return
	}
	w.enqueue(&w.links[route[next]], k, hop)
}
