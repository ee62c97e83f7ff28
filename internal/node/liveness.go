package node

import (
	"github.com/allcast/allcast/internal/step"
	"github.com/allcast/allcast/internal/wire"
)

// liveness watches the left neighbour on the ring of living processes, and sends heartbeats to the
// right one. A living process that has made no call still sends heartbeats and is not silent.
type liveness struct {
	rank, size int
	dead       map[int]bool // lost ranks; a list of all ranks would not scale to many simulated nodes
	deaths     []int        // lost ranks, in the order in which this rank learned of them
	left       int          // rank that this rank watches; -1 if no other rank lives
	right      int          // rank that watches this rank
	heardAt    step.Time
	beatAt     step.Time // time of the last heartbeat sent
	stepAt     step.Time // time of the last check
	suspectAt  step.Time // time when left was first found silent; 0 if it is not silent
	interval   step.Time // heartbeat interval
}

func newLiveness(now step.Time, cfg *Config) liveness {
	l := liveness{
		rank: cfg.Rank, size: cfg.Size, dead: map[int]bool{},
		stepAt: now, interval: max(1, cfg.Timeout/4),
	}
	l.left, l.right = -1, -1
	l.retarget(now)
	l.beatAt = now // the first heartbeat is not urgent
	return l
}

// retarget finds the nearest living neighbours. A new left neighbour gets the full timeout.
func (l *liveness) retarget(now step.Time) {
	left, right := l.neighbour(-1), l.neighbour(1)
	if left != l.left {
		l.left, l.heardAt, l.suspectAt = left, now, 0
	}
	if right != l.right {
		l.right = right
		l.beatAt = now - l.interval // send a heartbeat soon
	}
}

func (l *liveness) neighbour(dir int) int {
	if l.dead[l.rank] {
		return -1 // this rank was declared lost: no peer talks or listens to it
	}
	for i := 1; i < l.size; i++ {
		if r := (l.rank + dir*i + l.size) % l.size; !l.dead[r] {
			return r
		}
	}
	return -1
}

// recordSign records a sign of life. The driver may report received data late, so a sign may be older
// than the previous one. Only a newer sign counts.
func (l *liveness) recordSign(at step.Time, from int) {
	if from == l.left && at > l.heardAt {
		l.heardAt, l.suspectAt = at, 0
	}
}

// nextAt returns the time of the next heartbeat or check.
func (l *liveness) nextAt(timeout step.Time) step.Time {
	if l.left < 0 || timeout <= 0 {
		return step.Never
	}
	return min(l.beatAt+l.interval, max(l.heardAt+timeout, l.suspectAt+l.interval/4))
}

// checkLiveness sends a heartbeat when one is due, and declares a silent neighbour lost.
func (n *Node) checkLiveness(now step.Time) {
	l := &n.live
	if l.left < 0 || n.cfg.Timeout <= 0 {
		return
	}
	late := now-l.stepAt > l.interval/2 // checks of a suspected rank are more frequent than that
	l.stepAt = now
	if now-l.beatAt >= l.interval {
		l.beatAt = now
		n.send(l.right, &wire.Msg{Kind: wire.MsgHeartbeat})
	}
	// Check twice, and on time. If this process was the one that was stopped, its neighbour's
	// messages are still unread at the first check, but not at the second.
	switch {
	case now-l.heardAt < n.cfg.Timeout:
	case l.suspectAt == 0 || late:
		l.suspectAt = now
	case now-l.suspectAt >= l.interval/4:
		n.declareLost(now, l.left, -1)
	}
}
