//go:build verbs

package verbs

import (
	"slices"

	"github.com/allcast/allcast/internal/fabric"
	"github.com/allcast/allcast/internal/fabric/session"
)

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

// Register implements fabric.Memory. Memory that a region covers is ready at once. A goroutine registers
// other memory, since pinning pages takes long.
func (r *RC) Register(op fabric.OpKey, buf []byte) (ready bool) {
	g := &registration{addr: address(buf), len: int64(len(buf))}
	if len(buf) > 0 {
		g.reg = r.dev.mem.own(buf)
		g.pending = g.reg == nil
	}
	r.regMu.Lock()
	defer r.regMu.Unlock()
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
func (r *RC) register(op fabric.OpKey, g *registration, buf []byte) {
	reg, err := r.dev.mem.acquire(buf)
	r.regMu.Lock()
	g.pending = false
	asking := g.asking
	g.asking = nil
	if err != nil && r.regs[op] == g {
		delete(r.regs, op)
	}
	over := g.over
	if err == nil && !over {
		g.reg = reg
	}
	r.regMu.Unlock()
	if err == nil && over {
		r.dev.mem.disownNow(reg)
	}
	for _, p := range asking {
		p.answer(op)
	}
	r.h.Registered(op, err)
}

// Unregister implements fabric.Memory.
func (r *RC) Unregister(op fabric.OpKey) {
	r.regMu.Lock()
	g, asked := r.regs[op], r.asked[op]
	delete(r.asked, op)
	var exposed []*peer
	var reg *region
	if g != nil {
		g.over = true
		reg = g.reg
		if len(g.exposed) == 0 {
			delete(r.regs, op)
		} else {
			exposed = slices.Clone(g.exposed) // revoked changes it
			r.dev.mem.use(reg)                // until all of them have forgotten it
		}
	}
	r.regMu.Unlock()
	if reg != nil {
		r.dev.mem.disown(reg)
	}
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
func (r *RC) registered(op fabric.OpKey) bool {
	r.regMu.Lock()
	defer r.regMu.Unlock()
	g := r.regs[op]
	return g != nil && !g.over
}

// answer tells the peer the address of a buffer, as soon as it is registered.
func (p *peer) answer(op fabric.OpKey) {
	r := p.r
	here := session.Frame{Kind: session.Here, Op: op, No: true}
	r.regMu.Lock()
	if g := r.regs[op]; g != nil && g.pending {
		if !slices.Contains(g.asking, p) {
			g.asking = append(g.asking, p)
		}
		r.regMu.Unlock()
		return
	} else if g != nil && !g.over && g.reg != nil {
		if !slices.Contains(g.exposed, p) {
			g.exposed = append(g.exposed, p)
		}
		here.No, here.RKey, here.ID, here.Len = false, g.reg.rkey, g.addr, g.len
	}
	r.regMu.Unlock()
	p.mu.Lock()
	p.control(here)
	p.unlock()
}

// revoked handles a peer's message that it has forgotten the address of a buffer.
func (r *RC) revoked(p *peer, op fabric.OpKey) {
	r.regMu.Lock()
	g := r.regs[op]
	over := false
	if g != nil && len(g.exposed) > 0 {
		g.exposed = slices.DeleteFunc(g.exposed, func(e *peer) bool { return e == p })
		if over = g.over && len(g.exposed) == 0; over {
			delete(r.regs, op)
		}
	}
	r.regMu.Unlock()
	if over {
		r.dev.mem.drop(g.reg)
	}
}

// revokedBy is revoked for all buffers that a peer knows, since the peer is gone.
func (r *RC) revokedBy(p *peer) {
	r.regMu.Lock()
	var ops []fabric.OpKey
	for op, g := range r.regs {
		if slices.Contains(g.exposed, p) {
			ops = append(ops, op)
		}
	}
	r.regMu.Unlock()
	for _, op := range ops {
		r.revoked(p, op)
	}
}

// forgetAll ends all registrations, since no peer can read any more.
func (r *RC) forgetAll() {
	r.regMu.Lock()
	regs := r.regs
	r.regs = map[fabric.OpKey]*registration{}
	r.regMu.Unlock()
	for _, g := range regs {
		switch {
		case g.reg == nil:
		case g.over:
			r.dev.mem.drop(g.reg)
		default:
			r.dev.mem.disown(g.reg)
		}
	}
}
