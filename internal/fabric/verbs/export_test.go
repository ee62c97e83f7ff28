//go:build verbs

package verbs

import (
	"net/netip"
	"unsafe"

	"github.com/allcast/allcast/internal/fabric"
	"github.com/allcast/allcast/internal/fabric/session"
)

// Die ends all connections without a goodbye, as a killed process does.
func (r *RC) Die() {
	for p := range r.others {
		p.mu.Lock()
		p.life.Drop()
		if p.life.Vanish() {
			p.destroy()
		}
		p.unlock()
	}
}

// Gate blocks registrations of users' memory until open is called. With an error, they then fail.
func (r *RC) Gate() (open func(error)) {
	m := &r.dev.mem
	gate := make(chan struct{})
	var failure error
	m.pin = func(b []byte, remote bool) (*region, error) {
		<-gate
		if failure != nil {
			return nil, failure
		}
		return m.register(b, remote)
	}
	return func(err error) {
		failure = err
		close(gate)
	}
}

// MaxAnswers is the largest number of answers that may wait for a peer.
const MaxAnswers = maxAnswers

// Ask asks a peer for the addresses of buffers, without the limits of a correct rank.
func (r *RC) Ask(peer int, ops ...fabric.OpKey) {
	p := r.peers[peer]
	p.mu.Lock()
	defer p.unlock()
	for _, op := range ops {
		p.control(session.Frame{Kind: session.Ask, Op: op})
	}
}

// TakeNothing gives a peer no more credit, and makes this rank ignore its own limit.
func (r *RC) TakeNothing(peer int) {
	p := r.peers[peer]
	p.mu.Lock()
	defer p.unlock()
	p.in.held = maxHeld
	p.out.credit.Received(1 << 20)
}

// Readers counts the peers that wait for the address of a buffer, and those that know it.
func (r *RC) Readers(op fabric.OpKey) (asking, exposed int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	g := r.regs[op]
	return len(g.asking), len(g.exposed)
}

// Settle waits until unused regions are deregistered.
func (r *RC) Settle() { r.dev.mem.going.Wait() }

// Spoil makes the device refuse registered memory, until mend is called.
func (r *RC) Spoil(b []byte) (mend func()) {
	reg := r.mem.find(b, holdUser)
	r.mem.release(reg, holdUser)
	right := reg.lkey
	reg.lkey = ^right
	return func() { reg.lkey = right }
}

// FailQueuePair reports the failure of a peer's queue pair, as the device does.
func (r *RC) FailQueuePair(peer int) {
	p := r.peers[peer]
	r.dev.inject(&asyncEvent{kind: eventQPFatal, object: unsafe.Pointer(p.qp), qp: cu32(p.qpn)})
}

// Fail reports the failure of the device, as the device does.
func (d *Device) Fail() { d.inject(&asyncEvent{kind: eventDeviceFatal}) }

func (d *Device) inject(e *asyncEvent) {
	tell, again := d.events.find(e)
	d.events.handle(e, tell, again)
}

// MisplacePort makes the device refuse to reset queue pairs, until find is called.
func (d *Device) MisplacePort() (find func()) {
	right := d.port
	d.port = 99
	return func() { d.port = right }
}

// FailQueuePair reports the failure of a queue pair, as the device does.
func (m *Multicast) FailQueuePair(sub int, comm uint32) {
	q := m.subs[sub].queue(comm)
	m.dev.inject(&asyncEvent{kind: eventQPFatal, object: unsafe.Pointer(q.qp), qp: cu32(q.num)})
}

// States of a queue pair.
const (
	stateRTS = 3
	stateSQD = 4
)

// Pause stops a queue pair from sending. After Resume, the next Send restarts it.
func (m *Multicast) Pause(sub int, comm uint32) int {
	return setState(m.subs[sub].queue(comm).qp, stateSQD)
}

// Resume ends Pause.
func (m *Multicast) Resume(sub int, comm uint32) int {
	return setState(m.subs[sub].queue(comm).qp, stateRTS)
}

// Overflow generates more completions than the send side's completion queue holds.
func (m *Multicast) Overflow(sub int) int {
	s := m.subs[sub]
	s.mu.Lock()
	defer s.mu.Unlock()
	for range 4 * s.depth {
		for i := range s.reqs {
			s.reqs[i] = request{
				id: 1 << 40, op: opSendImm, signalled: 1,
				addr0: cu64(address(s.slots.heads)), len0: cu32(s.slots.head), key0: cu32(s.slots.reg.lkey),
			}
		}
		if _, rc := s.base.post(s.reqs[:]); rc != 0 {
			return rc
		}
	}
	return 0
}

// LoseGroup ends the membership in the job's group, as the network may do.
func (m *Multicast) LoseGroup(sub int) {
	q := m.subs[sub].base
	q.group.detach(q)
	_ = q.group.keeper.f.SetReadDeadline(past) // the keeper acts as if an answer had not come in time
}

// DoNotAttach makes attaching queue pairs to some groups silently do nothing.
func DoNotAttach(to func(netip.Addr) bool) { attaches = func(a netip.Addr) bool { return !to(a) } }

// Checks counts the Check frames that were sent.
func (r *RC) Checks() uint64 { return r.counters.checks.Load() }

// Doorbells counts the calls that posted requests.
func (r *RC) Doorbells() uint64 { return r.counters.doorbells.Load() }

// Registrations counts buffers that were registered for one operation, those that were deregistered,
// and those that needed no registration because they are from Alloc or registered already.
func (r *RC) Registrations() (made, ended, saved uint64) {
	m := &r.dev.mem
	return m.registered.Load(), m.deregistered.Load(), m.reused.Load()
}

// Counters are the counters of a subgroup.
type Counters struct {
	Sent, Received       uint64 // datagrams
	Echoes               uint64 // received datagrams of this rank itself
	Copied               uint64 // datagrams that were not sent from the user's memory
	Doorbells            uint64 // calls that posted datagrams
	Completions          uint64 // of datagrams that were sent
	InFlight             uint64 // largest number of batches that the device had at the same time
	Failures, Recoveries uint64 // of queue pairs
	Calls                uint64 // calls into C that returned datagrams
	QPs                  int    // queue pairs in use
}

// Counters returns the counters of a subgroup.
func (m *Multicast) Counters(sub int) Counters {
	s := m.subs[sub]
	s.mu.Lock()
	defer s.mu.Unlock()
	c, rx := &s.counters, s.receiver
	return Counters{
		InFlight: c.peak, Failures: c.failures, Recoveries: c.recoveries,
		Sent: c.sent, Doorbells: c.doorbells, Completions: c.completions, Copied: c.copied,
		Received: rx.datagrams.Load(), Echoes: rx.echoes.Load(), Calls: rx.calls.Load(), QPs: 1 + len(s.comms),
	}
}

// Links counts the peers for which there is a queue pair.
func (r *RC) Links() (n int) {
	for p := range r.others {
		p.mu.Lock()
		if p.qp != nil {
			n++
		}
		p.mu.Unlock()
	}
	return n
}

// LoseIntroductions makes the rank lose its next introductions.
func (r *RC) LoseIntroductions(n int) {
	r.lobby.mu.Lock()
	defer r.lobby.mu.Unlock()
	r.lobby.lose = n
}
