package engine

import (
	"fmt"

	"github.com/allcast/allcast/internal/fabric"
	"github.com/allcast/allcast/internal/protocol"
)

// handler is the Engine as its fabric sees it: everything becomes a task.
type handler Engine

// Message implements fabric.Handler.
func (h *handler) Message(from int, msg []byte) {
	m, err := protocol.ParseMsg(msg)
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
func (h *handler) ReadData(from int, r fabric.Range, off int64, b *fabric.Buffer) {
	t := newTask(taskRead)
	t.peer, t.rng, t.off, t.buf = from, r, off, b
	(*Engine)(h).push(t)
}

// ReadPlaced implements fabric.DirectHandler.
func (h *handler) ReadPlaced(from int, r fabric.Range, ok bool) {
	t := newTask(taskPlaced)
	t.peer, t.rng = from, r
	if ok {
		t.n = 1
	}
	(*Engine)(h).push(t)
}

// RegisterFailed implements fabric.DirectHandler.
func (h *handler) RegisterFailed(op fabric.OpKey, err error) {
	t := newTask(taskUnregistered)
	t.piece.Op, t.err = op, err
	(*Engine)(h).push(t)
}

// Lost implements fabric.Handler.
func (h *handler) Lost(peer int, err error) {
	t := newTask(taskLost)
	t.peer, t.err = peer, err
	(*Engine)(h).push(t)
}
