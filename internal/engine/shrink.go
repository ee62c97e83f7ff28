package engine

import (
	"context"
	"slices"
	"strconv"

	"github.com/allcast/allcast/internal/fabric"
	"github.com/allcast/allcast/internal/node"
)

// agreements are those under way, by request.
type agreements map[uint64]*agreeing

type agreeing struct {
	done chan struct{}
	end  *node.Agreed
}

// Agree lets the members of a communicator that live agree on who they are; it works
// on a broken one. All of them call it. If id is not 0, there is a communicator of
// them afterwards, under an id that one of them gave: no two ever give the same. When
// ctx ends, ranks that live and have not come are waited for no longer; how it ends is
// still the same for all.
func (e *Engine) Agree(ctx context.Context, comm, id uint32) (*node.Agreed, error) {
	a := &agreeing{done: make(chan struct{})}
	var req uint64
	var err error
	if !e.do(func() { req, err = e.agree(comm, id, a) }) {
		return nil, ErrClosed
	}
	if err != nil {
		return nil, err
	}
	select {
	case <-a.done:
		return a.end, nil
	case <-e.over:
		return nil, ErrClosed
	case <-ctx.Done():
	}
	e.do(func() { e.node.Hurry(e.now(), comm, req); e.act() })
	select {
	case <-a.done:
		return a.end, nil
	case <-e.over:
		return nil, ErrClosed
	}
}

func (e *Engine) agree(comm, id uint32, a *agreeing) (req uint64, err error) {
	if e.closing.Load() && comm != Exit {
		return 0, ErrClosed
	}
	e.reqs++
	if e.agreeing == nil {
		e.agreeing = agreements{}
	}
	e.agreeing[e.reqs] = a
	req = e.reqs
	if err = e.node.Agree(e.now(), comm, req, id); err != nil {
		delete(e.agreeing, req)
	}
	e.act()
	return req, err
}

// agreed takes the end of an agreement. The new communicator is there for us before
// any message for it is looked at.
func (e *Engine) agreed(a *node.Action) {
	w := e.agreeing[a.Req]
	delete(e.agreeing, a.Req)
	if g := a.Agreed; g.ID != 0 {
		e.register(g.ID, commName(g.ID), g.Members)
	}
	w.end = a.Agreed
	if a.Agreed.Members == nil && !e.closing.Load() {
		// The caller may end because of it: the verdict leaves first.
		go func() {
			e.rel.Flush(lastWords)
			close(w.done)
		}()
		return
	}
	close(w.done)
}

// commName is the name of a communicator whose id no other one of the job ever has.
func commName(id uint32) string { return strconv.FormatUint(uint64(id), 10) }

// register is what the engine has to know of a communicator.
func (e *Engine) register(id uint32, name string, members []int) {
	e.names[id] = name
	if m, ok := e.cfg.Multicast.(fabric.CommMulticast); ok && id >= FirstComm {
		if err := m.AddComm(id, name); err != nil {
			e.log.Warn("a communicator shares the job's multicast groups", "comm", name, "err", err)
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.comms[id] = &group{rank: slices.Index(members, e.cfg.Rank), members: members}
}

// RemoveComm ends the use of a communicator on this process. Calls under way go on;
// when they have ended, and others need us no longer, its memory is free.
func (e *Engine) RemoveComm(id uint32) (err error) {
	if !e.do(func() { err = e.node.RemoveComm(id); e.act() }) {
		return ErrClosed
	}
	return err
}

// Comms is how many communicators take up memory.
func (e *Engine) Comms() (n int) {
	e.do(func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		n = max(e.node.Comms(), len(e.comms), len(e.names))
	})
	return n
}

// removed forgets a communicator.
func (e *Engine) removed(id uint32) {
	if m, ok := e.cfg.Multicast.(fabric.CommMulticast); ok && id >= FirstComm {
		m.RemoveComm(id)
	}
	delete(e.names, id)
	e.forgetEarly(id)
	e.mu.Lock()
	delete(e.comms, id)
	e.mu.Unlock()
}

// depart waits until all ranks that live want to leave. It is what Leave does when
// ranks were lost, so that a barrier of all cannot be.
func (e *Engine) depart(ctx context.Context, leaving <-chan struct{}) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = e.Agree(ctx, Exit, 0) // how it ends does not matter
	}()
	select {
	case <-done:
	case <-leaving:
	case <-ctx.Done():
	}
}
