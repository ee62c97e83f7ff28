package engine

import (
	"context"
	"strconv"

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
		e.joinLater(g.ID)
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

// join joins the multicast groups of a communicator, where each has its own. It may take long.
func (e *Engine) join(id uint32, name string) {
	if g := e.caps.Groups; g != nil && id >= FirstComm {
		if err := g.AddComm(id, name); err != nil {
			e.log.Warn("a communicator shares the job's multicast groups", "comm", name, "err", err)
			e.probes.outside(id)
		}
	}
}

// joinLater is join for a communicator that is there already. Its operations wait for it.
func (e *Engine) joinLater(id uint32) {
	if e.caps.Groups == nil {
		return
	}
	e.joining[id] = make(chan struct{})
	name := e.names[id]
	go func() {
		e.join(id, name)
		t := newTask(taskDo)
		t.do = func() { e.joined(id) }
		e.push(t)
	}()
}

// joined lets the operations begin that waited for their communicator's groups.
func (e *Engine) joined(id uint32) {
	close(e.joining[id])
	delete(e.joining, id)
	if _, known := e.names[id]; !known {
		e.part(id) // it was closed meanwhile
		return
	}
	for key, op := range e.ops {
		if key.Comm == id && op.joining {
			op.joining = false
			e.opened(op)
		}
	}
}

// part leaves the groups of a communicator.
func (e *Engine) part(id uint32) {
	if g := e.caps.Groups; g != nil && id >= FirstComm {
		go g.RemoveComm(id)
	}
}

// register is what the engine has to know of a communicator.
func (e *Engine) register(id uint32, name string, members []int) {
	e.names[id] = name
	e.mu.Lock()
	defer e.mu.Unlock()
	e.comms[id] = newGroup(e.cfg.Rank, members)
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
	delete(e.names, id)
	if e.joining[id] == nil {
		e.part(id)
	}
	e.probes.forget(id)
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
