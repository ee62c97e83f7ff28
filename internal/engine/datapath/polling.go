package datapath

import "sync/atomic"

// A Leader says whether a goroutine that waits for a call polls the network.
//
//	NoLeader     -> LeaderPolls   it began to poll
//	LeaderPolls  -> LeaderSleeps  nothing came for a while, and it blocks in the poller
//	LeaderSleeps -> LeaderPolls   it woke
//	LeaderPolls  -> NoLeader      its call has ended, or it gave up polling
//
// Only the leader changes the state. Other goroutines publish their work before they read the state,
// and the leader looks for work after it has changed it: work is never left to nobody.
type Leader uint32

// States.
const (
	NoLeader     Leader = iota // a goroutine in the background polls, the send worker sends
	LeaderPolls                // the leader polls and sends; nobody has to be woken
	LeaderSleeps               // the poller's Kick wakes the leader; the send worker sends
)

// Polling is how the workers share the network with a goroutine that waits for a call.
type Polling struct {
	Alone bool // Go runs one goroutine at a time

	send   *sender       // nil: the network has no multicast
	inc    *aggregation  // nil: the job has no aggregators
	leader atomic.Uint32 // Leader
	bulk   atomic.Bool   // the kernel still has many chunks to place, so that nothing happens soon
}

// Leader is the state of the goroutine that polls.
func (p *Polling) Leader() Leader { return Leader(p.leader.Load()) }

// SetLeader changes it. Unless the leader polls, the send worker takes over what is to be sent.
func (p *Polling) SetLeader(l Leader) {
	p.leader.Store(uint32(l))
	if l != LeaderPolls {
		p.send.rouse()
	}
}

// Serve multicasts without blocking what is to be sent, and takes sums of aggregators. It reports whether it did
// something.
func (p *Polling) Serve() bool {
	sent := p.send.serve()
	return p.inc.serve() || sent
}

// Bulk reports whether the kernel still has many chunks to place, so that polling is not worth it.
func (p *Polling) Bulk() bool { return p.bulk.Load() }
