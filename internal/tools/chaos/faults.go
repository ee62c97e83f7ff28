//go:build linux

package main

import (
	"syscall"
	"time"
)

// pause is how long nothing happens, at times very little: so that a failure meets the
// survivors while they agree on another.
func (r *runner) pause() time.Duration {
	if r.rnd.IntN(5) == 0 {
		return time.Duration(r.rnd.IntN(50)) * time.Millisecond
	}
	return 100*time.Millisecond + time.Duration(r.rnd.IntN(2400))*time.Millisecond
}

// strike does something to a rank.
func (r *runner) strike() {
	var well []*process
	for _, p := range r.ranks {
		if p.unharmed() && !p.busy && !p.gone && p.joined {
			well = append(well, p)
		}
	}
	// The draws are the same whoever is left, so that a seed means as much as it can.
	kind, who, how := r.rnd.IntN(100), r.rnd.IntN(1<<20), r.rnd.Float64()
	if r.closing || len(well) == 0 {
		return
	}
	p := well[who%len(well)]
	switch t := r.cfg.timeout; {
	case kind < 15:
		r.killed(p)
	case kind < 55:
		r.stopped(p, time.Duration(0.6*how*float64(t)), false)
	case kind < 65:
		r.stopped(p, 2*t+time.Duration(how*float64(t)), true)
	case r.place.lab == nil:
		r.stopped(p, time.Duration(0.1*how*float64(t)), false)
	case kind < 88:
		r.cut(p, time.Duration(0.2*how*float64(t)), false)
	default:
		r.cut(p, 2*t+time.Duration(how*float64(t)), true)
	}
}

// later has something done by who judges.
func (r *runner) later(d time.Duration, f func()) {
	events := r.events
	time.AfterFunc(d, func() { events <- event{do: f} })
}

func (r *runner) harm(p *process, kind string) { p.harm, p.harmAt = kind, time.Now() }

func (r *runner) killed(p *process) {
	r.note("rank %d is killed", p.rank)
	r.sum.faults["kill"]++
	r.harm(p, "kill")
	_ = p.cmd.Process.Kill()
}

// stopped stops a rank for a while. If that is for good, it must find out when it runs
// again.
func (r *runner) stopped(p *process, d time.Duration, good bool) {
	p.busy = true
	kind := "short stop"
	if good {
		kind = "stop"
		r.harm(p, kind)
	}
	r.sum.faults[kind]++
	r.note("rank %d is stopped for %v", p.rank, d.Round(time.Millisecond))
	_ = p.cmd.Process.Signal(syscall.SIGSTOP)
	r.later(d, func() {
		r.note("rank %d runs again", p.rank)
		_ = p.cmd.Process.Signal(syscall.SIGCONT)
		p.busy = false
	})
}

// cut cuts a rank's cable for a while. It takes time to do: who cuts does not wait.
func (r *runner) cut(p *process, d time.Duration, good bool) {
	p.busy = true
	kind := "short cut"
	if good {
		kind = "cut"
		r.harm(p, kind)
	}
	r.sum.faults[kind]++
	r.note("rank %d is cut off for %v or more", p.rank, d.Round(time.Millisecond))
	start, events := time.Now(), r.events
	go func() {
		down := r.place.cut(p.rank, false)
		events <- event{do: func() {
			if down != nil {
				r.violation("cutting the link of rank %d: %v", p.rank, down)
			}
		}}
		// TCP tries again after twice the time at most, so it may be silent for as long.
		wait := time.AfterFunc(max(0, (r.cfg.timeout-time.Second)/2-time.Since(start)), func() { events <- event{do: func() { r.doubted(p, start) }} })
		<-time.After(d)
		up := r.place.cut(p.rank, true)
		wait.Stop()
		events <- event{do: func() { r.mended(p, start, up) }}
	}()
}

// doubted: a cut takes so long that others may take the rank for lost.
func (r *runner) doubted(p *process, start time.Time) {
	if p.harm == "" && p.busy {
		r.note("rank %d is cut off for %v: others may take it for lost", p.rank, time.Since(start).Round(time.Millisecond))
		p.doubt = true
		r.sum.faults["doubtful cut"]++
	}
}

// mended: the link is up again. Who was cut off for good is ended after a while, in which
// it must do no harm.
func (r *runner) mended(p *process, start time.Time, err error) {
	r.note("the link of rank %d is up again after %v", p.rank, time.Since(start).Round(time.Millisecond))
	if err != nil {
		r.violation("mending the link of rank %d: %v", p.rank, err)
	}
	if p.unharmed() {
		p.busy = false
		return
	}
	r.later(r.cfg.timeout, func() {
		p.busy = false
		if !p.gone {
			r.note("rank %d, which was cut off, is ended", p.rank)
			_ = p.cmd.Process.Kill()
		}
	})
}
