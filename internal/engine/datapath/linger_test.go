package datapath

import (
	"testing"

	"github.com/allcast/allcast/internal/wire"
)

// A leader lets datagrams gather only while they come and much is still missing.
func TestLinger(t *testing.T) {
	d, sink := bare(t)
	w := newReceiver(d, 0, nil)
	d.linger = newLinger(8, 1000)
	d.recvs = []*receiver{w}
	const chunks = 4096
	l := benchLanding(t, chunks)
	at := uint32(0)
	arrive := func(n uint32) {
		w.in.Place(l.place, wire.Range{PSN: at, N: n})
		w.flush(false)
		at += n
	}
	linger := func(what string, want bool) {
		t.Helper()
		if pause := d.Linger(); pause > 0 != want {
			t.Errorf("%s: a pause of %v", what, pause)
		}
	}
	linger("before the operation", false)
	w.in.Open(l.op.token, l.place)
	linger("before the first chunk", false)
	arrive(8)
	linger("the worker has a goroutine of its own", false)
	w.poller, d.caps.Poller = restless{}, restless{}
	linger("chunks come", true)
	linger("nothing came", false)
	for range 20 {
		arrive(8)
		if pause := d.Linger(); pause > maxLinger {
			t.Errorf("a pause of %v", pause)
		}
	}
	arrive(chunks - at - 64)
	linger("near the end", false)
	sink.discard()
}
