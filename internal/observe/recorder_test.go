package observe

import (
	"testing"

	"github.com/allcast/allcast/internal/node"
	"github.com/allcast/allcast/internal/step"
	"github.com/allcast/allcast/internal/wire"
)

func TestRecorderKeepsTheLast(t *testing.T) {
	var r Recorder
	const n = Size + 100
	for i := range uint64(n) {
		r.Add(&Event{Kind: Phase, Seq: i, At: int64(i)})
	}
	all := r.Events(0)
	if len(all) != Size || all[0].Seq != n-Size || all[Size-1].Seq != n-1 || r.Total() != n {
		t.Errorf("%d events from %d to %d, %d in total", len(all), all[0].Seq, all[len(all)-1].Seq, r.Total())
	}
	if few := r.Events(3); len(few) != 3 || few[0].Seq != n-3 {
		t.Errorf("the last 3: %v", few)
	}
}

// Repeated messages are counted in one event, so that they do not displace older events.
func TestRecorderCountsRepetitions(t *testing.T) {
	var r Recorder
	r.Add(&Event{Kind: CallBegun, Seq: 7})
	for i := range 5000 {
		r.Add(&Event{Kind: Received, What: uint8(wire.MsgGrant), Seq: 7, Peer: 3, At: int64(i)})
	}
	r.Add(&Event{Kind: Received, What: uint8(wire.MsgGrant), Seq: 7, Peer: 4})
	got := r.Events(0)
	if len(got) != 3 || got[0].Kind != CallBegun || got[1].Times != 5000 || got[1].At != 4999 || got[2].Times != 1 {
		t.Errorf("%+v", got)
	}
}

func TestEventWords(t *testing.T) {
	for _, c := range []struct {
		e          Event
		what, more string
	}{
		{Event{Kind: CallBegun, What: uint8(wire.Allgather)}, "begun", "allgather"},
		{Event{Kind: CallFailed, What: uint8(node.Lost)}, "failed", "lost"},
		{Event{Kind: CallFailed}, "failed", "error"},
		{Event{Kind: Phase, What: uint8(step.Fetch)}, "phase", "fetch"},
		{Event{Kind: Sent, What: uint8(wire.MsgFinal)}, "sent", "final"},
		{Event{Kind: Received, What: uint8(wire.MsgWithdrawn)}, "received", "withdrawn"},
		{Event{Kind: Received, What: 250}, "received", "message"},
		{Event{Kind: PeerLost}, "peer-lost", ""},
		{Event{Kind: 200}, "unknown", ""},
	} {
		if c.e.Kind.String() != c.what || c.e.Detail() != c.more {
			t.Errorf("%+v is %q %q, want %q %q", c.e, c.e.Kind, c.e.Detail(), c.what, c.more)
		}
	}
}

func TestRecorderAllocatesNothing(t *testing.T) {
	var r Recorder
	e := Event{Kind: Sent, Peer: 1, Text: "ring"}
	if n := testing.AllocsPerRun(1000, func() { e.Seq++; r.Add(&e) }); n != 0 {
		t.Errorf("%v allocations per event", n)
	}
}

func BenchmarkRecorder(b *testing.B) {
	var r Recorder
	e := Event{Kind: Sent, Peer: 1}
	for b.Loop() {
		e.Seq++
		r.Add(&e)
	}
}

func BenchmarkRecorderRepetition(b *testing.B) {
	var r Recorder
	for b.Loop() {
		r.Add(&Event{Kind: Sent, Peer: 1, Seq: 3})
	}
}
