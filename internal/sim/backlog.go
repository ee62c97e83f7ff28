package sim

import (
	"github.com/allcast/allcast/internal/mcast"
	"github.com/allcast/allcast/internal/step"
)

// backlog holds datagrams that have reached a host but that its receive worker takes later in real time. In
// virtual time nothing is late: the worker takes each datagram at the time of its arrival.
//
// A host with thousands of peers spends its time on chunks that cause no action. The caches do not hold the
// state of all hosts, so it is much faster to take many chunks of a host at once. That changes no result: no
// chunk of a mcast.Lull causes an action or sets an earlier timer, and the host catches up before anything
// else happens to it.
type backlog struct {
	datagrams []arrival
	known     bool // whether lull is current
	lull      mcast.Lull
}

// arrival is a datagram that arrived at a time.
type arrival struct {
	pkt *packet
	at  int64
}

// maxBacklog limits the datagrams in a backlog.
const maxBacklog = 64

// postpone adds a datagram to the backlog. It returns false if the worker must take the datagram now. The
// backlog is then empty.
func (h *host) postpone(k *packet) bool {
	if !h.w.postpones {
		return false
	}
	b := &h.backlog
	if !b.known {
		b.known, b.lull = true, h.node.Lull()
	}
	n := uint32(len(b.datagrams)) + 1
	if n > b.lull.Chunks || ps(b.lull.Cutoff(ns(h.w.now), n)) < h.timerAt {
		h.catchUp()
		return false
	}
	b.datagrams = append(b.datagrams, arrival{k, h.w.now})
	if n == maxBacklog {
		h.catchUp()
	}
	return true
}

// catchUp takes the datagrams of the backlog. It must be called before anything else happens to the host.
func (h *host) catchUp() {
	b := &h.backlog
	if len(b.datagrams) == 0 {
		return
	}
	last := ns(b.datagrams[0].at) // time of the last chunk
	for _, d := range b.datagrams {
		placed, edge := h.chunk(d.pkt)
		if placed {
			last = ns(d.at)
		}
		if edge {
			h.reportQuietly(last)
		}
	}
	h.reportQuietly(last)
	b.datagrams, b.known = b.datagrams[:0], false
	if len(h.node.Actions()) > 0 || ps(h.node.NextTimer()) < h.timerAt {
		panic("sim: a datagram of the backlog caused an action")
	}
}

// reportQuietly passes the workers' reports to the node, which does not act on them. The last chunk of the
// reports arrived at a time.
func (h *host) reportQuietly(at step.Time) {
	for _, in := range h.workers {
		if r := in.Flush(); r != nil {
			h.node.Received(at, r, false)
			h.w.pools.recycle(r)
		}
	}
}

// catchUp lets all hosts catch up.
func (w *world) catchUp() {
	for _, h := range w.hosts {
		h.catchUp()
	}
}
