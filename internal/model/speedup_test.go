package model_test

import (
	"math"
	"testing"

	"github.com/allcast/allcast/internal/model"
	"github.com/allcast/allcast/internal/p2p"
)

func speedups(t *testing.T, p int) map[string]model.Speedup {
	t.Helper()
	all, err := model.Speedups(p)
	if err != nil {
		t.Fatal(err)
	}
	byAlgo := map[string]model.Speedup{}
	for _, s := range all {
		if s.Ranks != p || s.Op != "allgather+reduce-scatter" {
			t.Errorf("P = %d: %+v", p, s)
		}
		byAlgo[s.Algo] = s
	}
	return byAlgo
}

// Claim C2, Appendix B: S = 2 - 2/P, and the shares of equations 1 and 2.
func TestPaperC2(t *testing.T) {
	for _, p := range []int{2, 3, 4, 8, 16, 64, 188, 1024, model.MaxSpeedupRanks} {
		got, P := speedups(t, p), float64(p)
		ring, mc := got["ring+ring"], got["mcast+inc"]
		for _, share := range []float64{
			ring.AllgatherSendShare, ring.AllgatherRecvShare, ring.ReduceScatterSendShare, ring.ReduceScatterRecvShare,
		} {
			same(t, p, "a share of ring+ring (1)", share, 0.5)
		}
		same(t, p, "AG_mc's send share (2)", mc.AllgatherSendShare, 1/P)
		same(t, p, "RS_inc's receive share (2)", mc.ReduceScatterRecvShare, 1/P)
		same(t, p, "AG_mc's receive share (2)", mc.AllgatherRecvShare, 1-1/P)
		same(t, p, "RS_inc's send share (2)", mc.ReduceScatterSendShare, 1-1/P)
		same(t, p, "S", mc.Speedup, 2-2/P)

		// The paper derives S from bytes divided by shares.
		same(t, p, "S", (P-1)/ring.AllgatherRecvShare/((P-1)/mc.AllgatherRecvShare), mc.Speedup)
	}
}

func same(t *testing.T, p int, what string, got, want float64) {
	t.Helper()
	if math.Abs(got-want) > 1e-12 {
		t.Errorf("P = %d: %s is %v, want %v", p, what, got, want)
	}
}

// Figure 3: bytes at the node boundary in units of N. The mixed pairs do not relieve one direction and
// therefore gain nothing (Insight 2).
func TestPaperFigure3(t *testing.T) {
	got := speedups(t, 188)
	for algo, want := range map[string]struct{ send, recv int64 }{
		"ring+ring":  {374, 374},
		"mcast+ring": {188, 374},
		"ring+inc":   {374, 188},
		"mcast+inc":  {188, 188},
	} {
		s := got[algo]
		if s.Send != want.send || s.Recv != want.recv || s.Time != max(want.send, want.recv) {
			t.Errorf("%s: %d sent and %d received in %d, want %+v", algo, s.Send, s.Recv, s.Time, want)
		}
		if s.AllgatherSend+s.ReduceScatterSend != s.Send || s.AllgatherRecv+s.ReduceScatterRecv != s.Recv {
			t.Errorf("%s: the parts do not add up: %+v", algo, s)
		}
	}
	for _, algo := range []string{"ring+ring", "mcast+ring", "ring+inc"} {
		if got[algo].Speedup != 1 {
			t.Errorf("%s: speed-up %v, want 1", algo, got[algo].Speedup)
		}
	}
}

// The model's bytes of the ring equal those of its plans.
func TestRingBoundaryIsThePlans(t *testing.T) {
	for _, p := range []int{2, 3, 8, 31} {
		counts := make([]int64, p)
		for i := range counts {
			counts[i] = 1
		}
		s := speedups(t, p)["ring+ring"]
		for _, c := range []struct {
			kind       p2p.Kind
			send, recv int64
		}{{p2p.Allgather, s.AllgatherSend, s.AllgatherRecv}, {p2p.ReduceScatter, s.ReduceScatterSend, s.ReduceScatterRecv}} {
			plan, err := p2p.New("ring", p2p.Spec{Kind: c.kind, Size: p, Counts: counts})
			if err != nil {
				t.Fatal(err)
			}
			var send, recv int64
			for _, x := range plan.Sends {
				send += x.Len
			}
			for _, x := range plan.Recvs {
				recv += x.Len
			}
			if send != c.send || recv != c.recv {
				t.Errorf("%v on %d ranks: the plan sends %d and receives %d, the model says %d and %d",
					c.kind, p, send, recv, c.send, c.recv)
			}
		}
	}
}

func TestSpeedupLimits(t *testing.T) {
	for _, p := range []int{-1, 0, 1, model.MaxSpeedupRanks + 1} {
		if _, err := model.Speedups(p); err == nil {
			t.Errorf("%d ranks are accepted", p)
		}
	}
}
