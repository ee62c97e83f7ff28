//go:build verbs

package verbs

import (
	"slices"
	"sync"

	"github.com/allcast/allcast/internal/fabric"
	"github.com/allcast/allcast/internal/fabric/session"
)

// registry is this rank's buffers that peers may read. RC embeds it for fabric.Memory.
type registry struct {
	mem    *memory
	notify func(op fabric.OpKey, err error) // Handler.Registered
	work   sync.WaitGroup                   // goroutines that register memory

	mu    sync.Mutex
	regs  map[fabric.OpKey]*registration
	asked map[fabric.OpKey][]*peer // peers that were asked for the buffer of an operation
	shut  bool                     // Register does nothing
}

// A registration is an operation's buffer that peers may read.
type registration struct {
	reg     *region
	addr    uint64
	len     int64
	pending bool    // a goroutine is registering the buffer
	asking  []*peer // peers that asked for the address while it is pending, without duplicates
	exposed []*peer // peers that know the address, without duplicates
	over    bool    // Unregister was called; exposed peers or the goroutine may still need the region
}

// addOnce adds a peer to a list, unless the list has it.
func addOnce(list []*peer, p *peer) []*peer {
	if slices.Contains(list, p) {
		return list
	}
	return append(list, p)
}

// Register implements fabric.Memory. Memory that a region covers is ready at once. A goroutine registers
// other memory, since pinning pages takes long.
func (r *registry) Register(op fabric.OpKey, buf []byte) (ready bool) {
	g := &registration{addr: address(buf), len: int64(len(buf))}
	if len(buf) > 0 {
		g.reg = r.mem.find(buf, holdOwner)
		g.pending = g.reg == nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if g.pending && r.shut {
		return true // no peer can read any more
	}
	r.regs[op] = g
	if g.pending {
		r.work.Go(func() { r.register(op, g, buf) })
	}
	return !g.pending
}

// register registers the buffer. If Unregister was called meanwhile, nothing stays registered.
func (r *registry) register(op fabric.OpKey, g *registration, buf []byte) {
	reg, err := r.mem.acquire(buf)
	r.mu.Lock()
	g.pending = false
	asking := g.asking
	g.asking = nil
	switch {
	case err != nil && r.regs[op] == g:
		delete(r.regs, op)
	case err == nil && g.over:
		r.mem.release(reg, holdOwner)
	case err == nil:
		g.reg = reg
	}
	r.mu.Unlock()
	for _, p := range asking {
		p.answer(op)
	}
	r.notify(op, err)
}

// Unregister implements fabric.Memory.
func (r *registry) Unregister(op fabric.OpKey) {
	r.mu.Lock()
	asked := r.asked[op]
	delete(r.asked, op)
	var exposed []*peer
	if g := r.regs[op]; g != nil {
		g.over = true
		if len(g.exposed) == 0 {
			delete(r.regs, op)
		} else {
			exposed = slices.Clone(g.exposed) // forget changes it
			r.mem.use(g.reg)                  // until all of them have forgotten it
		}
		if g.reg != nil {
			r.mem.release(g.reg, holdOwner)
		}
	}
	r.mu.Unlock()
	for _, p := range asked {
		p.mu.Lock()
		p.cancelReads(op)
		p.unlock()
	}
	for _, p := range exposed {
		p.mu.Lock()
		gone := p.life.State() == session.Gone
		p.control(session.Frame{Kind: session.Revoke, Op: op})
		p.unlock()
		if gone {
			r.revoked(p, op)
		}
	}
}

// registered reports whether peers may still read an operation's buffer.
func (r *registry) registered(op fabric.OpKey) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	g := r.regs[op]
	return g != nil && !g.over
}

// ask records that a peer is asked for the buffer of an operation: again after a refusal.
func (r *registry) ask(p *peer, op fabric.OpKey) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asked[op] = addOnce(r.asked[op], p)
}

// answer tells the peer the address of a buffer, as soon as it is registered.
func (p *peer) answer(op fabric.OpKey) {
	if here := p.r.expose(p, op); here != nil {
		p.mu.Lock()
		p.control(*here)
		p.unlock()
	}
}

// expose makes the answer to a peer that asks for a buffer; nil: register answers later.
func (r *registry) expose(p *peer, op fabric.OpKey) *session.Frame {
	r.mu.Lock()
	defer r.mu.Unlock()
	g := r.regs[op]
	switch {
	case g != nil && g.pending:
		g.asking = addOnce(g.asking, p)
		return nil
	case g == nil || g.over || g.reg == nil:
		return &session.Frame{Kind: session.Here, Op: op, No: true}
	}
	g.exposed = addOnce(g.exposed, p)
	return &session.Frame{Kind: session.Here, Op: op, RKey: g.reg.rkey, ID: g.addr, Len: g.len}
}

// revoked handles a peer's message that it has forgotten the address of a buffer.
func (r *registry) revoked(p *peer, op fabric.OpKey) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.forget(p, op)
}

// revokedBy is revoked for all buffers, since the peer is gone.
func (r *registry) revokedBy(p *peer) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for op := range r.regs {
		r.forget(p, op)
	}
}

// forget removes a peer from those that know the address of a buffer. r.mu is held.
func (r *registry) forget(p *peer, op fabric.OpKey) {
	g := r.regs[op]
	if g == nil || !slices.Contains(g.exposed, p) {
		return
	}
	g.exposed = slices.DeleteFunc(g.exposed, func(e *peer) bool { return e == p })
	if g.over && len(g.exposed) == 0 {
		delete(r.regs, op)
		r.mem.release(g.reg, holdUser)
	}
}

// shutDown makes Register do nothing, and waits until nothing is being registered.
func (r *registry) shutDown() {
	r.mu.Lock()
	r.shut = true
	r.mu.Unlock()
	r.work.Wait()
}

// forgetAll ends all registrations, since no peer can read any more.
func (r *registry) forgetAll() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, g := range r.regs {
		switch {
		case g.reg == nil:
		case g.over:
			r.mem.release(g.reg, holdUser)
		default:
			r.mem.release(g.reg, holdOwner)
		}
	}
	clear(r.regs)
}
