package control

import (
	"bytes"
	"errors"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/allcast/allcast/internal/engine/datapath"
	"github.com/allcast/allcast/internal/fabric"
	"github.com/allcast/allcast/internal/node"
	"github.com/allcast/allcast/internal/reduce"
	"github.com/allcast/allcast/internal/wire"
)

// counted is a buffer of a network that counts its releases.
func counted(b []byte, released *atomic.Int32) *fabric.Buffer {
	return &fabric.Buffer{B: b, Free: func(*fabric.Buffer) { released.Add(1) }}
}

// kept returns how many pieces an engine keeps for later calls, and how many bytes it counts for them.
func kept(t *testing.T, e *engine) (pieces, size int) {
	t.Helper()
	if !e.do(func() {
		for _, p := range e.early.pieces {
			pieces += len(p)
		}
		for _, n := range e.early.kept {
			size += n
		}
	}) {
		t.Fatal("the engine has stopped")
	}
	return pieces, size
}

// blames fails the test unless a call failed because of a rank.
func blames(t *testing.T, r *Request, rank int) {
	t.Helper()
	<-r.Done()
	var e *node.Error
	if !errors.As(r.Err(), &e) || e.Culprit != rank {
		t.Errorf("got %v, want that rank %d failed", r.Err(), rank)
	}
}

// A rank that makes its calls late gets all data that faster ranks have sent before.
func TestDataBeforeItsCall(t *testing.T) {
	const size, n = 3, 1000
	all := newMemNet(size).engines(t)
	input := func(rank, call int) []byte { return bytes.Repeat([]byte{byte(16*call + rank + 1)}, n) }
	recv := make([][][]byte, size)
	var reqs [size][]*Request
	kinds := []wire.CallKind{wire.Allgather, wire.Allreduce, wire.Allgather, wire.ReduceScatter}
	start := func(rank int) {
		for i, kind := range kinds {
			c := Call{
				Kind: kind, Algo: "ring", Type: reduce.U8, Op: reduce.Sum, Counts: slices.Repeat([]int64{n}, size),
				Send: input(rank, i),
			}
			switch kind {
			case wire.Allgather:
				c.Recv = make([]byte, size*n)
			case wire.ReduceScatter:
				c.Send, c.Recv = slices.Concat(c.Send, c.Send, c.Send), make([]byte, n)
			default:
				c.Counts, c.Recv = nil, make([]byte, n)
			}
			r, err := all[rank].Start(World, c)
			if err != nil {
				t.Fatal(err)
			}
			reqs[rank], recv[rank] = append(reqs[rank], r), append(recv[rank], c.Recv)
		}
	}
	start(1)
	start(2)
	if pieces, size := kept(t, all[0]); pieces < 4 || size == 0 {
		t.Errorf("%d pieces of %d bytes are kept: want one of each call", pieces, size)
	}
	start(0)
	for rank := range all {
		for i, r := range reqs[rank] {
			want := slices.Concat(input(0, i), input(1, i), input(2, i))
			if i%2 == 1 {
				want = bytes.Repeat([]byte{byte(3*16*i + 6)}, n)
			}
			if <-r.Done(); r.Err() != nil || !bytes.Equal(recv[rank][i], want) {
				t.Errorf("rank %d, call %d: %v, or wrong data", rank, i, r.Err())
			}
		}
	}
	if pieces, size := kept(t, all[0]); pieces != 0 || size != 0 {
		t.Errorf("%d pieces are kept, %d bytes are counted", pieces, size)
	}
}

// No correct rank sends a small piece in parts ahead of the call, or more than its calls ahead can hold.
// Such a rank is given up.
func TestEarlyDataOfAWrongPeer(t *testing.T) {
	for name, send := range map[string]func(h fabric.Handler, released *atomic.Int32) (sent int32){
		"parts": func(h fabric.Handler, released *atomic.Int32) int32 {
			h.Data(1, fabric.Piece{Op: fabric.OpKey{Comm: World}, Len: 8}, 0, counted(make([]byte, 4), released))
			return 1
		},
		"too much": func(h fabric.Handler, released *atomic.Int32) (sent int32) {
			b := make([]byte, node.EagerLimit)
			// Two communicators of two ranks.
			limit := 2 * (earlyResults*(node.EagerLimit+(node.EagerSegments+2)*earlyCost) + node.MailCredit)
			for nth := range uint32(limit/node.EagerLimit + 1) {
				p := fabric.Piece{Op: fabric.OpKey{Comm: World}, Nth: nth, Len: node.EagerLimit}
				h.Data(1, p, 0, counted(b, released))
				sent++
			}
			return sent
		},
	} {
		t.Run(name, func(t *testing.T) {
			n := newMemNet(2)
			e := n.engines(t)[0]
			var released atomic.Int32
			if sent := send(n.ranks[0].h, &released); released.Load() != sent {
				t.Errorf("%d of %d buffers were released", released.Load(), sent)
			}
			c := Call{Kind: wire.Allreduce, Algo: "ring", Recv: make([]byte, 8), Type: reduce.U8, Op: reduce.Sum}
			r, err := e.Start(World, c)
			if err != nil {
				t.Fatal(err)
			}
			blames(t, r, 1)
			if pieces, size := kept(t, e); pieces != 0 || size != 0 {
				t.Errorf("%d pieces of %d bytes are kept of a rank that is gone", pieces, size)
			}
		})
	}
}

// Data that belongs to no call, now or later, is dropped: of an unknown communicator, of a rank that is
// not a member, of an ended call, too far ahead, or too large for an eager call.
func TestDataForNoCall(t *testing.T) {
	n := newMemNet(3)
	all := n.engines(t)
	for _, e := range all[:2] {
		if err := e.AddComm(FirstComm, "two", []int{0, 1}); err != nil {
			t.Fatal(err)
		}
	}
	everywhere(t, all, func(int) Call { return Call{Kind: wire.Barrier, Algo: "dissemination"} })
	var released atomic.Int32
	sent := int32(0)
	for _, c := range []struct {
		peer int
		op   fabric.OpKey
		size int
	}{
		{1, fabric.OpKey{Comm: 77, Seq: 0}, 4},
		{2, fabric.OpKey{Comm: FirstComm, Seq: 0}, 4},
		{1, fabric.OpKey{Comm: World, Seq: 0}, 0},
		{1, fabric.OpKey{Comm: World, Seq: 1 << 40}, 4},
		{1, fabric.OpKey{Comm: World, Seq: 1}, node.EagerLimit + 1},
	} {
		b := counted(make([]byte, c.size), &released)
		n.ranks[0].h.Data(c.peer, fabric.Piece{Op: c.op, Len: int64(c.size)}, 0, b)
		if sent++; released.Load() != sent {
			t.Errorf("%+v: not released", c)
		}
		if pieces, size := kept(t, all[0]); pieces != 0 || size != 0 {
			t.Errorf("%+v: %d pieces of %d bytes are kept", c, pieces, size)
		}
	}
	broadcast(t, all, 1000) // no rank was given up
}

// The data that was kept for later calls is dropped when a call fails.
func TestFailureForgetsEarlyData(t *testing.T) {
	e, h, r := reducing(t)
	next := fabric.OpKey{Comm: World, Seq: 1}
	h.Data(1, fabric.Piece{Op: next, Len: 4}, 0, &fabric.Buffer{B: make([]byte, 4)})
	if pieces, size := kept(t, e); pieces != 1 || size != earlyCost+4 {
		t.Fatalf("%d pieces of %d bytes are kept", pieces, size)
	}
	if err := e.Abort(World); err != nil {
		t.Fatal(err)
	}
	blames(t, r, 0)
	if pieces, size := kept(t, e); pieces != 0 || size != 0 {
		t.Errorf("%d pieces of %d bytes are kept for a communicator that is broken", pieces, size)
	}
	h.Data(1, fabric.Piece{Op: next, Len: 4}, 0, &fabric.Buffer{B: make([]byte, 4)})
	if pieces, _ := kept(t, e); pieces != 0 {
		t.Error("more is kept for it")
	}
}

// The buffer of a failed call is the caller's. Data that still arrives for it is released and not placed.
func TestDataAfterFailure(t *testing.T) {
	n := newMemNet(2)
	e := n.engines(t)[0]
	buf := []byte{1, 2, 3, 4, 5, 6, 7, 8}
	r, err := e.Start(World, Call{Kind: wire.Allreduce, Algo: "ring", Recv: buf, Type: reduce.U32, Op: reduce.Sum})
	if err != nil {
		t.Fatal(err)
	}
	key := fabric.OpKey{Comm: World}
	var op *datapath.Operation
	if e.do(func() { op = e.data.Operation(key) }); op == nil {
		t.Fatal("the call has not begun")
	}
	if err := e.Abort(World); err != nil {
		t.Fatal(err)
	}
	blames(t, r, 0)
	want := bytes.Clone(buf)
	var released atomic.Int32
	for nth := range uint32(2) {
		n.ranks[0].h.Data(1, fabric.Piece{Op: key, Nth: nth, Len: 4}, 0, counted([]byte{9, 9, 9, 9}, &released))
		// A connection found the operation before it failed.
		op.Receive(1, fabric.Piece{Op: key, Nth: nth, Len: 4}, 0, counted([]byte{9, 9, 9, 9}, &released))
	}
	if !bytes.Equal(buf, want) {
		t.Errorf("a call that has failed gets data: %v", buf)
	}
	if released.Load() != 4 {
		t.Errorf("%d of 4 buffers were released", released.Load())
	}
}
