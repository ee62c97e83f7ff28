package datapath

import "github.com/allcast/allcast/internal/fabric"

// Data implements fabric.Handler.
func (d *Datapath) Data(from int, p fabric.Piece, off int64, b *fabric.Buffer) {
	d.hear(from)
	if op := d.transfers.find(p.Op); op != nil {
		op.Receive(from, p, off, b)
		return
	}
	d.sink.Report(Event{Kind: EarlyData, Peer: from, Piece: p, off: off, Buf: b})
}

// PutDone implements fabric.Handler.
func (d *Datapath) PutDone(to int, p fabric.Piece) {
	d.sink.Report(Event{Kind: putDone, Peer: to, Piece: p})
}

// ReadData implements fabric.Handler: it places a part of the answer to a read.
func (d *Datapath) ReadData(from int, id fabric.ReadID, off int64, b *fabric.Buffer) {
	d.hear(from)
	defer b.Release()
	r := d.findRead(id, from)
	if r == nil || !r.op.pins.enter() {
		return
	}
	last, err := r.answered(off, b.B)
	if last {
		d.reads.remove(r.id)
		last = r.part == nil || r.part.arrived()
	}
	r.op.unpin()
	if err != nil {
		d.sink.Report(Event{Kind: PeerLost, Peer: from, Err: err})
	}
	if last {
		d.sink.Report(Event{Kind: readPlaced, read: r})
	}
}

// ReadIntoDone implements fabric.Handler.
func (d *Datapath) ReadIntoDone(from int, id fabric.ReadID, ok bool) {
	ev := Event{Kind: directReadDone, Peer: from, Piece: fabric.Piece{Op: id.Op}, Sum: id.ID}
	if ok {
		ev.N = 1
	}
	d.sink.Report(ev)
}

// Registered implements fabric.Handler.
func (d *Datapath) Registered(op fabric.OpKey, err error) {
	d.sink.Report(Event{Kind: registered, Piece: fabric.Piece{Op: op}, Err: err})
}

// Receive places a part of a piece of an open operation, and releases b. Any goroutine may call it.
func (op *Operation) Receive(peer int, p fabric.Piece, off int64, b *fabric.Buffer) {
	defer b.Release()
	from, member := op.bufs.Group.RankOf(peer)
	if !member || !op.pins.enter() {
		return
	}
	prefix, left, more, err := op.pieces.take(from, p, off, b.B)
	op.unpin()
	if err != nil {
		op.d.sink.Report(Event{Kind: PeerLost, Peer: peer, Err: err})
	}
	if more {
		op.d.sink.Report(Event{Kind: PiecesPlaced, Op: op, Peer: peer, Prefix: uint32(prefix), Left: uint32(left)})
	}
}

// unpin ends pins.enter.
func (op *Operation) unpin() {
	if op.pins.leave() {
		op.d.sink.Report(Event{Kind: quiet, Op: op})
	}
}
