package node

import (
	"github.com/allcast/allcast/internal/step"
	"github.com/allcast/allcast/internal/wire"
)

// liveness watches the left neighbour on the ring of living processes, and
// keeps the right one informed. A process that is alive but has made no call is
// not silent; only one without heartbeats is.
type liveness struct {
	rank, size int
	dead       []bool
	deaths     []int // the dead, in the order we learned of them
	left       int   // whom we watch; -1: nobody is left
	right      int   // who watches us
	heardAt    step.Time
	beatAt     step.Time // when we last sent a heartbeat
	stepAt     step.Time // when we last looked
	doubtAt    step.Time // when we first found it silent; 0: it is not
	every      step.Time
}

func newLiveness(now step.Time, cfg *Config) liveness {
	l := liveness{
		rank: cfg.Rank, size: cfg.Size, dead: make([]bool, cfg.Size),
		stepAt: now, every: max(1, cfg.Timeout/4),
	}
	l.left, l.right = -1, -1
	l.retarget(now)
	l.beatAt = now // nobody is impatient yet
	return l
}

// retarget finds the nearest living neighbours; a new one gets full time.
func (l *liveness) retarget(now step.Time) {
	left, right := l.neighbour(-1), l.neighbour(1)
	if left != l.left {
		l.left, l.heardAt, l.doubtAt = left, now, 0
	}
	if right != l.right {
		l.right = right
		l.beatAt = now - l.every // tell it soon
	}
}

func (l *liveness) neighbour(dir int) int {
	if l.dead[l.rank] {
		return -1 // we are out: nobody talks to us any more, and nobody listens
	}
	for i := 1; i < l.size; i++ {
		if r := (l.rank + dir*i + l.size) % l.size; !l.dead[r] {
			return r
		}
	}
	return -1
}

// heard takes a sign of life. Data is noted when it comes and told later, so a sign may be older than
// one that was told before it: only a newer sign says anything new.
func (l *liveness) heard(at step.Time, from int) {
	if from == l.left && at > l.heardAt {
		l.heardAt, l.doubtAt = at, 0
	}
}

// nextAt is when there is something to send or to notice.
func (l *liveness) nextAt(timeout step.Time) step.Time {
	if l.left < 0 || timeout <= 0 {
		return step.Never
	}
	return min(l.beatAt+l.every, max(l.heardAt+timeout, l.doubtAt+l.every/4))
}

// beat sends a heartbeat when one is due, and declares a silent neighbour lost.
func (n *Node) beat(now step.Time) {
	l := &n.live
	if l.left < 0 || n.cfg.Timeout <= 0 {
		return
	}
	late := now-l.stepAt > l.every/2 // when in doubt, we look sooner than that
	l.stepAt = now
	if now-l.beatAt >= l.every {
		l.beatAt = now
		n.send(l.right, &wire.Msg{Kind: wire.MsgHeartbeat})
	}
	// Look twice, and in time: if it is we who were stopped, what our neighbour
	// sent meanwhile is unread the first time, and was read the second.
	switch {
	case now-l.heardAt < n.cfg.Timeout:
	case l.doubtAt == 0 || late:
		l.doubtAt = now
	case now-l.doubtAt >= l.every/4:
		n.declare(now, l.left, -1)
	}
}
