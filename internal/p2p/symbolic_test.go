package p2p_test

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/allcast/allcast/internal/clustertest"
	"github.com/allcast/allcast/internal/p2p"
)

// symbolic is an execution in which a byte is the set of the ranks whose input is in it. A send carries
// the bytes of its rank after exactly the receives that its After demands.
type symbolic struct {
	c    call
	m    *matched
	have [][]uint64 // by rank and byte
	want []uint64   // by byte: ranks that contribute to the result
	done []int      // by rank: receives applied
	next [][][]int  // by rank and number of receives: sends that wait for just these
	sent [][][]uint64
	err  error
}

func (c call) symbolic(m *matched) *symbolic {
	s := &symbolic{c: c, m: m, done: make([]int, c.Size)}
	ref := c.reference(0)
	total := ref.Total()
	s.want = make([]uint64, total)
	for r, p := range m.plans {
		have := make([]uint64, total+p.Scratch)
		for lo, hi := ref.Owned(r); lo < hi; lo++ {
			have[lo] = 1 << r
			s.want[lo] |= 1 << r
		}
		s.have = append(s.have, have)
		s.sent = append(s.sent, make([][]uint64, len(p.Sends)))
		next := make([][]int, len(p.Recvs)+1)
		for i, snd := range p.Sends {
			next[snd.After] = append(next[snd.After], i)
		}
		s.next = append(s.next, next)
		s.send(r)
	}
	return s
}

// run applies receives, each rank's in order, until nothing is left.
func (s *symbolic) run() error {
	for moved := true; moved && s.err == nil; {
		moved = false
		for r := range s.m.plans {
			for s.err == nil && s.receive(r) {
				moved = true
			}
		}
	}
	for r, p := range s.m.plans {
		if s.err == nil && s.done[r] < len(p.Recvs) {
			s.err = fmt.Errorf("rank %d never gets its receive %d, %+v", r, s.done[r], p.Recvs[s.done[r]])
		}
		copyWithin(s.have[r], p.After)
		for lo, hi := s.c.reference(0).Wanted(r); lo < hi && s.err == nil; lo++ {
			if s.have[r][lo] != s.want[lo] {
				s.err = fmt.Errorf("rank %d ends with %b at byte %d, want %b", r, s.have[r][lo], lo, s.want[lo])
			}
		}
	}
	return s.err
}

// send records the bytes of the sends that wait for exactly the receives so far.
func (s *symbolic) send(r int) {
	for _, i := range s.next[r][s.done[r]] {
		snd := s.m.plans[r].Sends[i]
		data := append([]uint64{}, clustertest.Gather(s.have[r], snd.Off, snd.Len, snd.Parts)...)
		for k, ranks := range data {
			if ranks == 0 {
				s.err = fmt.Errorf("rank %d sends %+v, but has nothing at byte %d yet", r, snd, snd.Off+int64(k))
			}
		}
		s.sent[r][i] = data
	}
}

func (s *symbolic) receive(r int) bool {
	p := s.m.plans[r]
	if s.done[r] == len(p.Recvs) {
		return false
	}
	recv, from := p.Recvs[s.done[r]], s.m.sender[r][s.done[r]]
	data := s.sent[from.rank][from.i]
	if data == nil {
		return false
	}
	for k, came := range data {
		at := recv.Off + int64(k)
		have := s.have[r][at]
		if recv.Apart {
			have = s.have[r][recv.Base+int64(k)]
		}
		switch {
		case recv.Reduce && have&came != 0:
			s.err = fmt.Errorf("rank %d adds %b to %b at byte %d: some count twice", r, came, have, at)
		case recv.Reduce:
			came |= have
		case at >= int64(len(s.want)): // scratch memory
		case came != s.want[at]:
			s.err = fmt.Errorf("rank %d gets %+v with %b at byte %d, want %b", r, recv, came, at, s.want[at])
		}
		s.have[r][at] = came
	}
	s.done[r]++
	s.send(r)
	return true
}

// No send reads a byte before the receives that it needs: with the receives up to After and no more, all
// ranks get their results.
func TestSendsNeedNothingAfterAfter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := drawCall(t, 40)
		if clustertest.Exchanges(c.Kind) {
			t.Skip("its buffers hold different data")
		}
		plans := make([]*p2p.Plan, c.Size)
		for r := range plans {
			plans[r] = planOf(t, c, r)
		}
		m, err := match(plans)
		if err != nil {
			t.Fatalf("%v: %v", c, err)
		}
		if err := c.symbolic(m).run(); err != nil {
			t.Fatalf("%v: %v", c, err)
		}
	})
}

// The same for every algorithm and P = 1..40.
func TestSendsNeedNothingAfterAfterForEveryP(t *testing.T) {
	everyAlgorithm(t, func(x subject) {
		t, kind, algo := x.T, x.kind, x.algo
		if clustertest.Exchanges(kind) {
			return // its buffers hold different data
		}
		for size := 1; size <= 40; size++ {
			for _, segment := range []int64{0, 2} {
				c := call{algo, p2p.Spec{Kind: kind, Size: size, Root: size / 3, Segment: segment}}.sized(5)
				m, err := match(c.plans(t))
				if err == nil {
					err = c.symbolic(m).run()
				}
				if err != nil {
					t.Errorf("%v: %v", c, err)
				}
			}
		}
	})
}
