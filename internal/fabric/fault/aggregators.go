package fault

import (
	"math/rand/v2"
	"slices"
	"sync"

	"github.com/allcast/allcast/internal/fabric"
	"github.com/allcast/allcast/internal/inc"
)

// WrapAggregators returns a with the faults of a Spec in both directions: in the contributions that the rank sends and
// in the sums that it receives. Nothing is damaged, because datagrams of aggregators have no checksums.
func WrapAggregators(a fabric.Aggregators, s Spec, rank int) fabric.Aggregators {
	if s.Drop+s.Dup+s.Reorder == 0 {
		return a
	}
	source := func(side uint64) *rand.Rand { return rand.New(rand.NewPCG(s.Seed, uint64(rank)<<16|1<<15|side)) }
	return &aggregators{
		Aggregators: a, out: faulty{spec: s, rng: source(0)}, in: faulty{spec: s, rng: source(1)},
	}
}

type aggregators struct {
	fabric.Aggregators
	mu  sync.Mutex // guards out
	out faulty
	in  faulty // used by the receiving goroutine
}

// faulty decides the fate of datagrams that pass in one direction.
type faulty struct {
	spec Spec
	rng  *rand.Rand
	held []sum
}

type sum struct {
	header  inc.Header
	payload []byte
	places  int // datagrams that may still overtake it
}

// pass reports whether a datagram passes now. It keeps a copy of datagrams that pass later or again.
func (f *faulty) pass(h *inc.Header, payload []byte) bool {
	x := f.rng.Float64()
	later := func() {
		f.held = append(f.held, sum{*h, slices.Clone(payload), 1 + f.rng.IntN(maxDisplacement)})
	}
	switch s := f.spec; {
	case x < s.Drop:
		return false
	case x < s.Drop+s.Dup:
		later()
	case x < s.Drop+s.Dup+s.Reorder:
		later()
		return false
	}
	return true
}

// due removes the held datagrams that n others have overtaken, or all with flush.
func (f *faulty) due(n int, flush bool) (due []sum) {
	kept := f.held[:0]
	for _, s := range f.held {
		if s.places -= n; s.places <= 0 || flush {
			due = append(due, s)
		} else {
			kept = append(kept, s)
		}
	}
	f.held = kept
	return due
}

// Send sends what is left of a batch, and then the held contributions whose time has come. The last ones of an
// operation may stay held, and so are lost.
func (a *aggregators) Send(headers []inc.Header, payloads [][]byte) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	hs, ps := make([]inc.Header, 0, len(headers)), make([][]byte, 0, len(headers))
	for i := range headers {
		if a.out.pass(&headers[i], payloads[i]) {
			hs, ps = append(hs, headers[i]), append(ps, payloads[i])
		}
	}
	if len(hs) > 0 {
		if err := a.Aggregators.Send(hs, ps); err != nil {
			return err
		}
	}
	for _, s := range a.out.due(len(headers), false) {
		if err := a.Aggregators.Send([]inc.Header{s.header}, [][]byte{s.payload}); err != nil {
			return err
		}
	}
	return nil
}

func (a *aggregators) Receive(f func(h *inc.Header, payload []byte), idle func()) error {
	release := func(n int, flush bool) {
		for _, s := range a.in.due(n, flush) {
			f(&s.header, s.payload)
		}
	}
	return a.Aggregators.Receive(func(h *inc.Header, payload []byte) {
		if a.in.pass(h, payload) {
			f(h, payload)
		}
		release(1, false)
	}, func() {
		release(0, true)
		idle()
	})
}
