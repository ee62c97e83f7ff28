package datapath

import (
	"bytes"
	"encoding/binary"
	"errors"
	"slices"
	"testing"

	"github.com/allcast/allcast/internal/fabric"
	"github.com/allcast/allcast/internal/inc"
	"github.com/allcast/allcast/internal/place"
	"github.com/allcast/allcast/internal/reduce"
	"github.com/allcast/allcast/internal/testenv"
	"github.com/allcast/allcast/internal/wire"
)

// fakePort records contributions.
type fakePort struct {
	headers  []inc.Header
	payloads [][]byte
	batches  []int
	closed   chan struct{}
}

func (*fakePort) Token(comm, number uint32) uint64 { return uint64(comm)<<32 | uint64(number) | 1<<63 }

func (p *fakePort) Send(hs []inc.Header, payloads [][]byte) error {
	p.headers = append(p.headers, hs...)
	for _, b := range payloads {
		p.payloads = append(p.payloads, bytes.Clone(b))
	}
	p.batches = append(p.batches, len(hs))
	return nil
}

func (p *fakePort) Receive(func(*inc.Header, []byte), func()) error {
	<-p.closed
	return errors.New("closed")
}

func (*fakePort) Poll() bool { return false }

func (p *fakePort) Close() error {
	close(p.closed)
	return nil
}

// readNet records the reads of inputs.
type readNet struct {
	heldNet
	reads map[int]fabric.ReadRequest // by peer
}

func (n *readNet) Read(to int, r fabric.ReadRequest) {
	r.Spans = slices.Clone(r.Spans)
	n.reads[to] = r
}

// incTest is a Reduce-Scatter of 32-bit integers on rank 1 of 3, whose network the test plays. The communicator has the
// ranks of the job in reverse order.
type incTest struct {
	*testing.T
	d      *Datapath
	sink   *recorded
	net    readNet
	port   *fakePort
	op     *Operation
	inputs [][]byte // by rank of the communicator
	layout *inc.Layout
	record *place.Map
}

const (
	incRank  = 1
	incChunk = 16
)

var incCounts = []int64{40, 36, 20}

func newIncTest(t *testing.T, inPlace bool) *incTest {
	t.Helper()
	x := &incTest{T: t, port: &fakePort{closed: make(chan struct{})}, net: readNet{reads: map[int]fabric.ReadRequest{}}}
	x.net.registers = true
	x.d, x.sink = bare(t)
	tree, err := inc.ParseTree("127.0.0.1:1=0;127.0.0.1:2=1-2>127.0.0.1:1", 3)
	if err != nil {
		t.Fatal(err)
	}
	x.d.cfg.Aggregators, x.d.cfg.Tree = x.port, tree
	x.d.cfg.PortTraffic = func() PortTraffic { return PortTraffic{Sent: 4, SentBytes: 300, Unsent: 2, Dropped: 1} }
	x.d.rel = fabric.Reliable{Messages: &x.net, Memory: &x.net, Reader: &x.net}
	x.d.startAggregation()
	t.Cleanup(func() {
		x.d.inc.close()
		x.d.workers.Wait()
	})
	for rank := range incCounts {
		b := make([]byte, 96)
		for i := 0; i < len(b); i += 4 {
			binary.LittleEndian.PutUint32(b[i:], uint32(1000*(rank+1)+i))
		}
		x.inputs = append(x.inputs, b)
	}
	g := NewGroup("reverse", 1, []int{2, 1, 0})
	send := bytes.Clone(x.inputs[incRank])
	b := &Buffers{
		Group: &g, Send: send, Recv: make([]byte, incCounts[incRank]), Own: 40, Reduces: true, Type: reduce.I32,
		Op: reduce.Sum,
	}
	if inPlace {
		b.Recv = send[40:76]
	}
	x.layout = inc.NewLayout(incCounts, incChunk)
	x.record = place.New(x.layout.Chunks(incRank))
	x.op = x.d.StartRound(Round{
		Key: fabric.OpKey{Comm: 7, Seq: 3}, Buffers: b, Layout: x.layout, Record: x.record, Number: 5,
		Reduction: &inc.Reduction{Rank: incRank, Size: 3, Kind: wire.ReduceScatter, Counts: incCounts, Chunk: incChunk},
	})
	return x
}

// header is that of the sum of a chunk of this rank's block.
func (x *incTest) header(nth uint32) inc.Header {
	return inc.Header{
		Kind: inc.Result, Type: uint8(reduce.I32), Reduce: uint8(reduce.Sum), Token: x.port.Token(7, 5), Comm: 7, Number: 5,
		Place: x.layout.Place(incRank, nth), Owner: 1,
	}
}

// sum is what aggregators send for a chunk: the sum of the inputs of all other ranks.
func (x *incTest) sum(nth uint32) []byte {
	_, _, off, n := x.layout.At(x.layout.Place(incRank, nth))
	s := bytes.Clone(x.inputs[0][off : off+n])
	if err := reduce.Into(s, x.inputs[2][off:off+n], reduce.I32, reduce.Sum); err != nil {
		x.Fatal(err)
	}
	return s
}

// check compares chunks of the result.
func (x *incTest) check(chunks ...uint32) {
	x.Helper()
	for _, nth := range chunks {
		want := x.sum(nth)
		_, _, off, n := x.layout.At(x.layout.Place(incRank, nth))
		if err := reduce.Into(want, x.inputs[incRank][off:off+n], reduce.I32, reduce.Sum); err != nil {
			x.Fatal(err)
		}
		if got := x.op.bufs.Recv[off-40:][:n]; !bytes.Equal(got, want) {
			x.Errorf("chunk %d: got %v, want %v", nth, got, want)
		}
		if !x.record.InPlace(nth) {
			x.Errorf("chunk %d is not recorded", nth)
		}
	}
}

// events takes the reported events of a kind.
func (x *incTest) events(kind EventKind) (n int) {
	for _, ev := range x.sink.take() {
		if ev.Kind == kind {
			n++
		}
	}
	return n
}

func TestSumsArePlacedOnce(t *testing.T) {
	for _, inPlace := range []bool{false, true} {
		x := newIncTest(t, inPlace)
		a := x.d.inc
		for range 2 {
			for _, nth := range []uint32{2, 0, 1} {
				h := x.header(nth)
				a.take(&h, x.sum(nth))
			}
		}
		x.check(0, 1, 2)
		a.report()
		if n := x.events(Summed); n != 1 {
			t.Errorf("%d reports of sums that came at once", n)
		}
		c := x.d.inc.counters()
		if c.Contributions != 4 || c.IncBytes != 300 || c.Unsent != 2 || c.SumsDropped != 1 {
			t.Errorf("traffic: %+v", c)
		}
		if c.Sums != 3 || c.SumsTwice != 3 {
			t.Errorf("%d sums, %d came twice; want 3 of both", c.Sums, c.SumsTwice)
		}
		if got := x.op.bufs.Send[:40]; !bytes.Equal(got, x.inputs[incRank][:40]) {
			t.Error("the input has changed outside of this rank's block")
		}
	}
}

func TestForgedSumsAreIgnored(t *testing.T) {
	x := newIncTest(t, false)
	for name, forge := range map[string]func(h *inc.Header, b []byte) []byte{
		"token":     func(h *inc.Header, b []byte) []byte { h.Token++; return b },
		"kind":      func(h *inc.Header, b []byte) []byte { h.Kind = inc.Contribution; return b },
		"comm":      func(h *inc.Header, b []byte) []byte { h.Comm++; return b },
		"number":    func(h *inc.Header, b []byte) []byte { h.Number++; return b },
		"owner":     func(h *inc.Header, b []byte) []byte { h.Owner = 0; return b },
		"block":     func(h *inc.Header, b []byte) []byte { h.Place = x.layout.Place(0, 0); return b },
		"place":     func(h *inc.Header, b []byte) []byte { h.Place = x.layout.Places(); return b },
		"far place": func(h *inc.Header, b []byte) []byte { h.Place = 1<<32 - 1; return b },
		"type":      func(h *inc.Header, b []byte) []byte { h.Type = uint8(reduce.F32); return b },
		"operator":  func(h *inc.Header, b []byte) []byte { h.Reduce = uint8(reduce.Max); return b },
		"short":     func(_ *inc.Header, b []byte) []byte { return b[4:] },
		"empty":     func(*inc.Header, []byte) []byte { return nil },
		"long":      func(_ *inc.Header, b []byte) []byte { return append(b, 0, 0, 0, 0) },
	} {
		h := x.header(0)
		b := forge(&h, x.sum(0))
		x.d.inc.take(&h, b)
		if !x.record.Free(0) || !bytes.Equal(x.op.bufs.Recv, make([]byte, 36)) {
			t.Errorf("a sum with a forged %s was taken", name)
		}
	}
	if c := x.d.inc.counters(); c.SumsStale != 1 || c.SumsForeign != 12 || c.Sums != 0 {
		t.Errorf("%+v", c)
	}
}

// A sum that arrives after the operation failed is not placed.
func TestSumsAfterFailure(t *testing.T) {
	x := newIncTest(t, false)
	if x.op.Quiesce() {
		t.Fatal("quiet before the sender of contributions has answered")
	}
	h := x.header(0)
	x.d.inc.take(&h, x.sum(0))
	// A datagram that found the operation before it failed.
	x.d.inc.change(func(ops map[uint64]*Operation) { ops[h.Token] = x.op })
	x.d.inc.take(&h, x.sum(0))
	if !bytes.Equal(x.op.bufs.Recv, make([]byte, 36)) {
		t.Error("the buffer of a failed operation was written to")
	}
}

func TestContributions(t *testing.T) {
	x := newIncTest(t, false)
	x.d.inc.contribute(&command{op: x.op, n: x.layout.Places(), try: 2})
	at := 0
	for p := range x.layout.Places() {
		owner, _, off, n := x.layout.At(p)
		if owner == incRank {
			continue
		}
		want := inc.Header{
			Kind: inc.Contribution, Try: 2, Type: uint8(reduce.I32), Reduce: uint8(reduce.Sum), Token: x.port.Token(7, 5),
			Comm: 7, Number: 5, Place: p, Owner: uint16(2 - owner),
		}
		if at >= len(x.port.headers) || x.port.headers[at] != want {
			t.Fatalf("place %d: got %+v, want %+v", p, x.port.headers[at], want)
		}
		if !bytes.Equal(x.port.payloads[at], x.inputs[incRank][off:off+n]) {
			t.Errorf("place %d has a wrong payload", p)
		}
		at++
	}
	if at != len(x.port.headers) {
		t.Errorf("%d contributions, want %d", len(x.port.headers), at)
	}
	// All payloads of a batch are equally long, except for the last one.
	i := 0
	for _, n := range x.port.batches {
		for k := range n - 1 {
			if len(x.port.payloads[i+k]) != len(x.port.payloads[i]) {
				t.Errorf("a batch of different payloads")
			}
		}
		i += n
	}
}

// answer answers the reads of inputs, in pieces.
func (x *incTest) answer() {
	for peer, r := range x.net.reads {
		delete(x.net.reads, peer)
		var all []byte
		for _, s := range r.Spans {
			all = append(all, x.inputs[2-peer][s.Off:s.Off+s.Len]...)
		}
		for off := 0; off < len(all); off += 12 {
			b := &fabric.Buffer{B: all[off:min(off+12, len(all))]}
			x.d.ReadData(peer, r.ReadID, int64(off), b)
		}
	}
}

func TestFetch(t *testing.T) {
	for _, inPlace := range []bool{false, true} {
		x := newIncTest(t, inPlace)
		h := x.header(1)
		x.d.inc.take(&h, x.sum(1))
		x.op.Fetch(0, 3) // chunk 1 is in place
		late := x.header(2)
		x.d.inc.take(&late, x.sum(2))
		if len(x.net.reads) != 2 || x.net.reads[1].Spans != nil {
			t.Fatalf("reads %+v, want one of each other rank", x.net.reads)
		}
		x.answer()
		for _, ev := range x.sink.take() {
			if ev.Kind == readPlaced && x.d.Accept(&ev) {
				t.Error("the end of a part is none of the node's business")
			}
		}
		if psn, n, ok := x.fetched(); !ok || psn != 0 || n != 3 {
			t.Errorf("fetched %d chunks from %d on: %v", n, psn, ok)
		}
		x.check(0, 1, 2)
		if c := x.d.inc.counters(); c.SumsLate != 1 || c.FetchedInBytes != 2*20 {
			t.Errorf("%d late sums, %d bytes fetched", c.SumsLate, c.FetchedInBytes)
		}
		x.op.Fetch(0, 3) // nothing is left to fetch
		if _, _, ok := x.fetched(); !ok || len(x.net.reads) > 0 {
			t.Error("chunks in place are fetched")
		}
		x.op.Release()
	}
}

// fetched returns the chunks of the last event Fetched.
func (x *incTest) fetched() (psn, n uint32, ok bool) {
	for _, ev := range x.sink.take() {
		if ev.Kind == Fetched {
			psn, n = ev.Made()
			ok = x.d.Accept(&ev)
		}
	}
	return psn, n, ok
}

// A fetch of an operation that fails leaves its buffers alone, and gives its memory back.
func TestFetchAfterFailure(t *testing.T) {
	x := newIncTest(t, false)
	x.op.Fetch(0, 3)
	x.op.Quiesce()
	x.answer()
	if !bytes.Equal(x.op.bufs.Recv, make([]byte, 36)) {
		t.Error("the buffer of a failed operation was written to")
	}
	quiet := testenv.Soon(func() bool {
		for _, ev := range x.sink.take() {
			if x.d.Accept(&ev) && ev.Kind != Quiesced {
				t.Errorf("event %d of a failed operation", ev.Kind)
			}
		}
		return x.op.state == opQuiet
	})
	if !quiet || len(x.op.reducing.parts) > 0 {
		t.Errorf("state %d, %d parts are left", x.op.state, len(x.op.reducing.parts))
	}
}
