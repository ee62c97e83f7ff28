package node

import (
	"github.com/allcast/allcast/internal/mcast"
	"github.com/allcast/allcast/internal/place"
	"github.com/allcast/allcast/internal/wire"
)

// intakes are the receive workers of a process, by subgroup. Datagrams name their operation by
// communicator and slot, so that the next user of the slot gets late datagrams.
type intakes struct {
	layout wire.Layout
	taken  *place.Taken
	subs   map[int]*mcast.Intake
}

func newIntakes(cfg Config) intakes {
	w := intakes{layout: cfg.Layout, taken: cfg.Taken, subs: map[int]*mcast.Intake{}}
	if w.taken == nil {
		w.taken = &place.Taken{}
	}
	return w
}

func (w *intakes) sub(i int) *mcast.Intake {
	if w.subs[i] == nil {
		w.subs[i] = mcast.NewIntake(w.layout, 1<<20, w.taken, func() *mcast.Report { return &mcast.Report{} })
	}
	return w.subs[i]
}

func token(comm, slot uint32) uint64 { return uint64(comm)<<32 | uint64(slot) }

// open lets datagrams of a round be placed.
func (w *intakes) open(all []*mcast.Placement) {
	for _, p := range all {
		w.sub(p.Stream).Open(token(p.Comm, w.layout.Slot(p.Seq)), p)
	}
}

func (w *intakes) close(all []*mcast.Placement) {
	for _, p := range all {
		w.sub(p.Stream).Close(p)
	}
}

// take judges a datagram, and calls place with the position of its payload.
func (w *intakes) take(
	comm uint32, sub int, imm uint32, length int, place func(p *mcast.Placement, psn uint32, off int64),
) bool {
	slot, _ := w.layout.Split(imm)
	in := w.sub(sub)
	p, psn, off, v := in.Judge(token(comm, slot), comm, imm, length)
	if v != mcast.Placed {
		in.Ignore(p, v, 1)
		return false
	}
	if place != nil {
		place(p, psn, off)
	}
	in.Place(p, wire.Range{PSN: psn, N: 1})
	return true
}
