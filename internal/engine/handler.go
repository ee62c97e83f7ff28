package engine

import (
	"fmt"

	"github.com/allcast/allcast/internal/fabric"
	"github.com/allcast/allcast/internal/wire"
)

// handler is the Engine as its fabric sees it: everything becomes a task.
type handler Engine

// Message implements fabric.Handler.
func (h *handler) Message(from int, msg []byte) {
	m, err := wire.ParseMsg(msg)
	if err != nil {
		h.Lost(from, fmt.Errorf("it sent what no correct peer sends: %w", err))
		return
	}
	t := newTask(taskMessage)
	t.peer, t.msg = from, m
	(*Engine)(h).push(t)
}

// Data implements fabric.Handler.
func (h *handler) Data(from int, p fabric.Piece, off int64, b *fabric.Buffer) {
	e := (*Engine)(h)
	e.sign(from)
	if op := e.transfers.find(p.Op); op != nil {
		e.receive(op, from, p, off, b)
		return
	}
	t := newTask(taskData)
	t.peer, t.piece, t.off, t.buf = from, p, off, b
	(*Engine)(h).push(t)
}

// PutDone implements fabric.Handler.
func (h *handler) PutDone(to int, p fabric.Piece) {
	t := newTask(taskPutDone)
	t.peer, t.piece = to, p
	(*Engine)(h).push(t)
}

// ReadData implements fabric.Handler.
func (h *handler) ReadData(from int, id fabric.ReadID, off int64, b *fabric.Buffer) {
	(*Engine)(h).sign(from)
	(*Engine)(h).answer(from, id, off, b)
}

// ReadIntoDone implements fabric.Handler.
func (h *handler) ReadIntoDone(from int, id fabric.ReadID, ok bool) {
	t := newTask(taskReadPlaced)
	t.peer, t.readID = from, id
	if ok {
		t.n = 1
	}
	(*Engine)(h).push(t)
}

// Registered implements fabric.Handler.
func (h *handler) Registered(op fabric.OpKey, err error) {
	t := newTask(taskRegistered)
	t.piece.Op, t.err = op, err
	(*Engine)(h).push(t)
}

// Lost implements fabric.Handler.
func (h *handler) Lost(peer int, err error) {
	t := newTask(taskLost)
	t.peer, t.err = peer, err
	(*Engine)(h).push(t)
}
