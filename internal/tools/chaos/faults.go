//go:build linux

package main

import (
	"syscall"
	"time"
)

// pause returns the time until the next fault. Some pauses are very short, so that a failure hits the
// survivors while they agree on an earlier one.
func (r *runner) pause() time.Duration {
	if r.rnd.IntN(5) == 0 {
		return time.Duration(r.rnd.IntN(50)) * time.Millisecond
	}
	longest := 2400
	if r.cfg.mode == modeLeave {
		longest *= 3 // ranks also close communicators and cancel calls meanwhile
	}
	return 100*time.Millisecond + time.Duration(r.rnd.IntN(longest))*time.Millisecond
}

// drawFault draws a fault. The draws do not depend on the remaining ranks, so that a seed is as reproducible as
// possible.
func (r *runner) drawFault() (kind, victim int, length float64) {
	return r.rnd.IntN(100), r.rnd.IntN(1 << 20), r.rnd.Float64()
}

// victim returns the rank for a fault, or nil if there is none.
func (r *runner) victim(draw int) *process {
	var well []*process
	for _, p := range r.ranks {
		if p.unharmed() && !p.busy && !p.exited && p.joined {
			well = append(well, p)
		}
	}
	if r.closing || len(well) == 0 {
		return nil
	}
	return well[draw%len(well)]
}

// injectFault injects a random fault into a random rank.
func (r *runner) injectFault() {
	kind, draw, length := r.drawFault()
	p := r.victim(draw)
	if p == nil {
		return
	}
	// What no rank may notice stays far below the timeout, since a busy machine adds to it. Ranks that are silent for
	// longer hold all others up for the timeout, so they are few.
	t := float64(r.cfg.timeout)
	short := func(share float64) time.Duration { return time.Duration(share * length * t) }
	long := time.Duration((1.5 + 0.5*length) * t)
	switch {
	case kind < 20:
		r.kill(p)
	case kind < 68:
		r.stopProcess(p, short(0.1), false)
	case kind < 72:
		r.stopProcess(p, long, true)
	case r.site.lab == nil:
		r.stopProcess(p, short(0.02), false)
	case kind < 96:
		r.cutLink(p, short(0.03), false)
	default:
		r.cutLink(p, long, true)
	}
}

// schedule makes the event loop call f after d.
func (r *runner) schedule(d time.Duration, f func()) {
	events := r.events
	time.AfterFunc(d, func() { events <- event{do: f} })
}

// begin records a fault of a rank. A permanent one must make the others exclude the rank.
func (r *runner) begin(p *process, kind string, permanent bool) {
	if permanent {
		p.fault, p.faultAt = kind, time.Now()
	} else {
		kind = "short " + kind
	}
	r.sum.faults[kind]++
}

func (r *runner) kill(p *process) {
	r.record("rank %d is killed", p.rank)
	r.begin(p, "kill", true)
	_ = p.cmd.Process.Kill()
}

// stopProcess stops a rank for a while. If the stop is permanent, the others exclude the rank, and it
// must find out when it runs again.
func (r *runner) stopProcess(p *process, d time.Duration, permanent bool) {
	p.busy = true
	r.begin(p, "stop", permanent)
	r.record("rank %d is stopped for %v", p.rank, d.Round(time.Millisecond))
	_ = p.cmd.Process.Signal(syscall.SIGSTOP)
	r.schedule(d, func() {
		r.record("rank %d runs again", p.rank)
		_ = p.cmd.Process.Signal(syscall.SIGCONT)
		p.busy = false
	})
}

// cutLink cuts a rank's link for a while. Cutting takes time, so a goroutine does it.
func (r *runner) cutLink(p *process, d time.Duration, permanent bool) {
	p.busy = true
	r.begin(p, "cut", permanent)
	r.record("rank %d is cut off for %v or more", p.rank, d.Round(time.Millisecond))
	start, events := time.Now(), r.events
	go func() {
		down := r.site.setLink(p.rank, false)
		events <- event{do: func() {
			if down != nil {
				r.violation("cutting the link of rank %d: %v", p.rank, down)
			}
		}}
		// TCP doubles its retransmission time, so it may stay silent for as long again.
		doubtAfter := max(0, (r.cfg.timeout-time.Second)/2-time.Since(start))
		wait := time.AfterFunc(doubtAfter, func() { events <- event{do: func() { r.markDoubtful(p, start) }} })
		<-time.After(d)
		up := r.site.setLink(p.rank, true)
		wait.Stop()
		events <- event{do: func() { r.linkRestored(p, start, up) }}
	}()
}

// markDoubtful handles a cut that lasts so long that other ranks may declare the rank lost.
func (r *runner) markDoubtful(p *process, start time.Time) {
	if p.fault == "" && p.busy {
		r.record("rank %d is cut off for %v: others may declare it lost", p.rank,
			time.Since(start).Round(time.Millisecond))
		p.doubtful = true
		r.sum.faults["doubtful cut"]++
	}
}

// linkRestored handles a link that is up again. A rank that was cut off permanently is killed after a
// while, during which it must do no harm.
func (r *runner) linkRestored(p *process, start time.Time, err error) {
	r.record("the link of rank %d is up again after %v", p.rank, time.Since(start).Round(time.Millisecond))
	if err != nil {
		r.violation("restoring the link of rank %d: %v", p.rank, err)
	}
	if p.unharmed() {
		p.busy = false
		return
	}
	r.schedule(r.cfg.timeout, func() {
		p.busy = false
		if !p.exited {
			r.record("rank %d, which was cut off, is killed", p.rank)
			_ = p.cmd.Process.Kill()
		}
	})
}
