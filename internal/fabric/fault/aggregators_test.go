package fault

import (
	"testing"

	"github.com/allcast/allcast/internal/inc"
)

// line is a way to aggregators that returns every contribution as a sum.
type line struct{ queue []inc.Header }

func (*line) Token(uint32, uint32) uint64 { return 0 }
func (*line) Poll() bool                  { return false }
func (*line) Close() error                { return nil }

func (l *line) Send(headers []inc.Header, payloads [][]byte) error {
	for i, h := range headers {
		if int(h.Place) != len(payloads[i]) {
			panic("a contribution with the payload of another one")
		}
	}
	l.queue = append(l.queue, headers...)
	return nil
}

func (l *line) Receive(f func(h *inc.Header, payload []byte), idle func()) error {
	for i := range l.queue {
		f(&l.queue[i], make([]byte, l.queue[i].Place))
	}
	idle()
	return nil
}

// transfer passes n datagrams through both directions, and returns the order in which they arrive.
func transfer(t *testing.T, spec string, n int) (places []uint32) {
	t.Helper()
	s, err := Parse(spec)
	if err != nil {
		t.Fatal(err)
	}
	a := WrapAggregators(&line{}, s, 3)
	const batch = 10
	for at := 0; at < n; at += batch {
		var hs []inc.Header
		var ps [][]byte
		for i := range batch {
			hs, ps = append(hs, inc.Header{Place: uint32(at + i)}), append(ps, make([]byte, at+i))
		}
		if err := a.Send(hs, ps); err != nil {
			t.Fatal(err)
		}
	}
	err = a.Receive(func(h *inc.Header, payload []byte) {
		if int(h.Place) != len(payload) {
			t.Errorf("sum %d has a payload of %d bytes", h.Place, len(payload))
		}
		places = append(places, h.Place)
	}, func() {})
	if err != nil {
		t.Fatal(err)
	}
	return places
}

func TestFaultsOfAggregators(t *testing.T) {
	const n = 1000
	count := func(places []uint32) (different, again, early int) {
		seen, last := map[uint32]bool{}, uint32(0)
		for _, p := range places {
			if seen[p] {
				again++
			}
			if p < last {
				early++
			}
			seen[p], last = true, max(last, p)
		}
		return len(seen), again, early
	}
	different, again, _ := count(transfer(t, "drop=10%,seed=1", n))
	if different < n*3/4 || different > n*7/8 || again > 0 {
		t.Errorf("of 1000 datagrams, %d arrive, and %d twice: want about 81 %%", different, again)
	}
	if different, again, _ = count(transfer(t, "dup=10%,seed=1", n)); different != n || again < n/8 || again > n/4 {
		t.Errorf("of 1000 datagrams, %d arrive, and %d again: want all, and about 20 %% again", different, again)
	}
	// Those that are held when nothing follows them are lost, as they are in a network.
	var early int
	different, again, early = count(transfer(t, "reorder=20%,seed=1", n))
	if different < n-maxDisplacement || again > 0 || early < n/8 {
		t.Errorf("of 1000 datagrams, %d arrive, %d twice and %d out of order", different, again, early)
	}
	if _, wrapped := WrapAggregators(&line{}, Spec{Corrupt: 0.5, Seed: 1}, 0).(*aggregators); wrapped {
		t.Error("datagrams without checksums are damaged")
	}
}
