package p2p_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/allcast/allcast/internal/p2p"
	"github.com/allcast/allcast/internal/step"
	"github.com/allcast/allcast/internal/wire"
)

// greeting is what a rank tells its right neighbour in the ring at its start.
func greeting(t *testing.T, r *p2p.Reduction) (to int, m wire.Msg) {
	t.Helper()
	for _, a := range p2p.NewIncOp(r).Numbered(3, 7).Step(1, step.Event{Kind: step.EvStart}, nil) {
		if a.Kind == step.ActSend {
			return a.To, a.Msg
		}
	}
	t.Fatalf("%+v: no greeting", r)
	return 0, m
}

// The network adds up whatever it gets, so ranks that call different things have
// to find out by themselves: around the ring each tells the next what it called.
func TestIncMismatch(t *testing.T) {
	like := p2p.Reduction{Kind: p2p.ReduceScatter, Size: 3, Counts: []int64{20, 20, 20}, Chunk: 10}
	for what, change := range map[string]func(*p2p.Reduction){
		"nothing": func(*p2p.Reduction) {},
		"counts":  func(r *p2p.Reduction) { r.Counts = []int64{20, 21, 19} },
		"kind":    func(r *p2p.Reduction) { r.Kind = p2p.Allreduce },
		"chunk":   func(r *p2p.Reduction) { r.Chunk = 11 },
		"type":    func(r *p2p.Reduction) { r.Type = 1 },
	} {
		for rank := range like.Size {
			own, odd := like, like
			own.Rank, odd.Rank = (rank+1)%like.Size, rank
			change(&odd)
			to, m := greeting(t, &odd)
			if to != own.Rank || m.Kind != wire.MsgReady || m.Comm != 3 || m.Seq != 7 || m.Call.Kind != odd.Kind ||
				m.Call.Bytes != 60 {
				t.Errorf("rank %d tells %d %+v", rank, to, m)
			}
			op, _ := incUp(t, &own)
			acts := op.Step(1, step.Event{Kind: step.EvMsg, From: rank, Msg: &m}, nil)
			found := slices.ContainsFunc(acts, func(a step.Action) bool { return a.Kind == step.ActMismatch && a.To == rank })
			if found != (what != "nothing") {
				t.Errorf("rank %d has another %s: rank %d does %+v", rank, what, own.Rank, acts)
			}
		}
	}
}

// Nobody ends before it has heard of its left neighbour, also if it has nothing to
// wait for otherwise; meanwhile that is whom it waits for.
func TestIncWaitsForItsLeft(t *testing.T) {
	r := &p2p.Reduction{Kind: p2p.ReduceScatter, Rank: 0, Size: 3, Counts: []int64{0, 0, 0}, Chunk: 10}
	op, up := incUp(t, r)
	if len(up) > 0 || op.Phase() != step.Transfer || op.WaitingOn() != 2 {
		t.Fatalf("sends %v, is %v, waits for %d", up, op.Phase(), op.WaitingOn())
	}
	_, m := greeting(t, &p2p.Reduction{Kind: p2p.ReduceScatter, Rank: 2, Size: 3, Counts: []int64{0, 0, 0}, Chunk: 10})
	op.Step(1, step.Event{Kind: step.EvMsg, From: 1, Msg: &m}, nil)
	if op.Phase() != step.Transfer {
		t.Error("it ends although only its right neighbour has greeted")
	}
	if acts := op.Step(1, step.Event{Kind: step.EvMsg, From: 2, Msg: &m}, nil); len(acts) != 2 ||
		op.Phase() != step.Closed {
		t.Errorf("is %v, does %v", op.Phase(), acts)
	}
}

// An Allreduce is cut into chunks as one block, however it was given: what is sent
// up is what comes down.
func TestIncAllreduceOfSeveralBlocks(t *testing.T) {
	r := &p2p.Reduction{Kind: p2p.Allreduce, Rank: 1, Size: 2, Counts: []int64{13, 0, 12}, Chunk: 10}
	op, up := incUp(t, r)
	_, hello := greeting(t, &p2p.Reduction{Kind: p2p.Allreduce, Rank: 0, Size: 2, Counts: []int64{25}, Chunk: 10})
	op.Step(1, step.Event{Kind: step.EvMsg, From: 0, Msg: &hello}, nil)
	sum := int64(0)
	for _, a := range up {
		if ok, _ := op.Result(1, a.Off, a.Len, nil); !ok {
			t.Errorf("the sum of %d bytes at %d is not taken", a.Len, a.Off)
		}
		sum += a.Len
	}
	if sum != 25 || op.Phase() != step.Closed {
		t.Errorf("%d bytes went up, the Op is %v and misses %s", sum, op.Phase(), op.Missing(nil))
	}
}

func TestBadReductions(t *testing.T) {
	good := p2p.Reduction{Kind: p2p.Allreduce, Size: 2, Counts: []int64{5}, Chunk: 1}
	if err := good.Check(); err != nil {
		t.Error(err)
	}
	for what, r := range map[string]p2p.Reduction{
		"no size":       {Kind: p2p.Allreduce, Counts: []int64{5}, Chunk: 1},
		"rank":          {Kind: p2p.Allreduce, Rank: 2, Size: 2, Counts: []int64{5}, Chunk: 1},
		"chunk":         {Kind: p2p.Allreduce, Size: 2, Counts: []int64{5}},
		"kind":          {Kind: p2p.Allgather, Size: 2, Counts: []int64{5, 5}, Chunk: 1},
		"blocks":        {Kind: p2p.ReduceScatter, Size: 2, Counts: []int64{5}, Chunk: 1},
		"no blocks":     {Kind: p2p.Allreduce, Size: 2, Chunk: 1},
		"negative":      {Kind: p2p.ReduceScatter, Size: 2, Counts: []int64{5, -1}, Chunk: 1},
		"overflow":      {Kind: p2p.ReduceScatter, Size: 2, Counts: []int64{1<<63 - 1, 1}, Chunk: 1 << 40},
		"too many bits": {Kind: p2p.Allreduce, Size: 2, Counts: []int64{1 << 50}, Chunk: 1},
	} {
		if err := r.Check(); !errors.Is(err, p2p.ErrSpec) {
			t.Errorf("%s: error %v", what, err)
		}
	}
}
