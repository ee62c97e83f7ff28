package probe

import (
	"slices"
	"testing"

	"github.com/allcast/allcast/internal/fabric"
	"github.com/allcast/allcast/internal/wire"
)

// A datagram counts only if it arrived whole: the first packet of several does not count.
func TestProbeCounts(t *testing.T) {
	p := New(7, 9, 2, 4, 1, 1, 20_000)
	for _, c := range []struct {
		rank  uint32
		bytes int
		want  bool
	}{{0, 8956, false}, {0, 20_000, true}, {1, 8956, false}, {1, 0, true}, {3, 0, false}, {3, 20_000, true}} {
		p.Take(0, wire.Header{Token: 7, Comm: 9, Imm: c.rank}, make([]byte, c.bytes))
		if got := p.heard[c.rank].Load(); got != c.want {
			t.Errorf("%d bytes of rank %d: heard %v", c.bytes, c.rank, got)
		}
	}
	select {
	case <-p.All():
	default:
		t.Error("All is open although all ranks were heard")
	}
}

// A rank counts as heard once it was heard on all subgroups. Foreign datagrams do not count.
func TestUnheard(t *testing.T) {
	p := New(7, 9, 0, 5, 2, 2, 100)
	for _, h := range []wire.Header{
		{Token: 8, Comm: 9, Imm: 1},
		{Token: 7, Comm: 8, Imm: 1},
		{Token: 7, Comm: 9, Imm: 5},
		{Token: 7, Comm: 9, Imm: 0},
		{Token: 7, Comm: 9, Imm: 1 << 31},
	} {
		p.Take(0, h, nil)
		p.Take(1, h, nil)
	}
	p.Take(0, wire.Header{Token: 7, Comm: 9, Imm: 1}, nil)
	for range 2 { // duplicates do not count
		p.Take(0, wire.Header{Token: 7, Comm: 9, Imm: 2}, nil)
		p.Take(1, wire.Header{Token: 7, Comm: 9, Imm: 2}, nil)
	}
	if got := p.Unheard(); !slices.Equal(got, []int{1, 3, 4}) {
		t.Errorf("ranks %v were not heard", got)
	}
	select {
	case <-p.All():
		t.Error("All is closed although some ranks were not heard")
	default:
	}
	select {
	case <-New(7, 9, 0, 1, 2, 2, 100).All():
	default:
		t.Error("All is open although there is no other rank")
	}
}

// A rank sends to all subgroups until it is told to stop.
func TestSend(t *testing.T) {
	p, q := New(7, 9, 0, 3, 2, 2, 100), New(7, 9, 1, 3, 2, 2, 100)
	stop := make(chan struct{})
	sends := 0
	p.Send(stop, func(sub int, b *fabric.Batch) {
		q.Take(sub, b.Headers[0], b.Payloads[0])
		if b.Headers[0].Sum != b.Headers[0].Checksum(b.Payloads[0]) {
			t.Error("the sum is wrong")
		}
		if sends++; sends == 4 {
			close(stop)
		}
	})
	if got := q.Unheard(); !slices.Equal(got, []int{2}) {
		t.Errorf("ranks %v were not heard", got)
	}
}

// On the further streams of a subgroup, the first and the last rank send, and only they count.
func TestFurtherStreams(t *testing.T) {
	p := New(7, 9, 1, 4, 2, 6, 0)
	for stream := range 2 {
		for _, r := range []uint32{0, 2, 3} {
			p.Take(stream, wire.Header{Token: 7, Comm: 9, Imm: r}, nil)
		}
	}
	for stream := 2; stream < 8; stream++ {
		p.Take(stream, wire.Header{Token: 7, Comm: 9, Imm: 2}, nil) // foreign, as is a stream that is not tested
		p.Take(stream, wire.Header{Token: 7, Comm: 9, Imm: 3}, nil)
	}
	if ranks := p.Unheard(); len(ranks) > 0 {
		t.Errorf("ranks %v were not heard", ranks)
	}
	if got := p.UnheardStreams(); !slices.Equal(got, []int{0}) {
		t.Errorf("ranks %v were not heard on the further streams", got)
	}
	for stream := 2; stream < 6; stream++ {
		p.Take(stream, wire.Header{Token: 7, Comm: 9}, nil)
	}
	select {
	case <-p.All():
	default:
		t.Error("All is open although all ranks were heard")
	}
	for rank, want := range []int{6, 2, 2, 6} {
		stop, sent := make(chan struct{}), 0
		close(stop)
		New(7, 9, rank, 4, 2, 6, 0).Send(stop, func(int, *fabric.Batch) { sent++ })
		if sent != want {
			t.Errorf("rank %d sends to %d streams, want %d", rank, sent, want)
		}
	}
}
