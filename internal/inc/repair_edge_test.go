package inc

import (
	"testing"

	"github.com/allcast/allcast/internal/step"
	"github.com/allcast/allcast/internal/wire"
)

// New credit gives ranks time to use it.
func TestOpWaitsAfterCredit(t *testing.T) {
	s, _ := begun(t, 1, 2, 50, 10)
	s.sent()
	s.sums(0, 1, 2, 3, 4)
	s.wait(50 * soloAlpha)
	wantAsks(s, s.hear(0, wire.Msg{Kind: wire.MsgGrant, Grant: 20}))
	wantAsks(s, s.wait(2*soloAlpha-1))
	if len(asks(s, s.wait(2*soloAlpha))) == 0 {
		t.Error("does not ask at all")
	}
}

// A chunk that is being written is neither asked for nor fetched, and its timer does not stand still.
func TestOpLeavesClaimedChunks(t *testing.T) {
	s, _ := begun(t, 0, 2, 50, 100)
	s.sent()
	s.sums(0, 2)
	wantAsks(s, s.wait(soloAlpha/4), [3]uint32{1, 1, 1})
	s.Record().Take(1)
	for _, a := range asks(s, s.wait(50*soloAlpha)) {
		if a[1] <= 1 {
			t.Errorf("asks for a claimed chunk: %v", a)
		}
	}
}

// A rank that has everything reports only when its fetches have ended: until then, its driver may read inputs.
func TestOpReportsAfterFetches(t *testing.T) {
	s, _ := begun(t, 1, 2, 8, 100)
	s.sent()
	var fetches []step.Action
	for rounds := 0; len(fetches) == 0; rounds++ {
		if fetches = only(s.wait(soloAlpha), step.ActFetch); rounds > 1000 {
			t.Fatal("no fetch")
		}
	}
	acts := s.sums(0, 1, 2, 3, 4, 5, 6, 7)
	if len(messages(acts, wire.MsgSentUp)) > 0 || s.Phase() != step.Handshake {
		t.Fatalf("reports with a fetch in flight: %+v", acts)
	}
	if acts := s.fetched(fetches[0]); len(messages(acts, wire.MsgSentUp)) != 1 || s.Stats().Repaired != 0 {
		t.Errorf("%+v, %+v", acts, s.Stats())
	}
}

// Other ranks may end the barrier earlier, so that sums arrive before this rank begins.
func TestOpCountsEarlySums(t *testing.T) {
	s := newSolo(t, 1, 2, 50, 100)
	s.do(step.Event{Kind: step.EvStart})
	s.sums(0, 2)
	s.hear(0, wire.Msg{Kind: wire.MsgIncGo, Grant: 100})
	if s.repair.top != 3 || s.repair.have != 1 {
		t.Fatalf("has %d chunks, the last one is %d", s.repair.have, s.repair.top)
	}
	wantAsks(s, s.wait(soloAlpha/4), [3]uint32{1, 1, 1})
}
