//go:build linux

package main

import (
	"context"
	"syscall"
	"time"
)

// harmAggregator injects a random fault into a random aggregator. No rank may fail because of it.
func (r *runner) harmAggregator() {
	list := r.site.lab.Plan.Aggregators
	kind, length := r.rnd.IntN(100), r.rnd.Float64()
	victim := list[r.rnd.IntN(len(list))].Switch.Name
	if r.closing || r.harmed[victim] {
		return
	}
	d := time.Duration(length * float64(3*time.Second))
	if kind%10 == 0 {
		d += 10 * time.Second // the silence after which its neighbours give it up
	}
	r.harmed[victim] = true
	l := r.site.lab
	restart := func() error { return l.RestartAggregator(context.Background(), victim) }
	switch {
	case kind < 40:
		r.sum.faults["aggregator killed"]++
		r.harm(victim, "is killed", d, func() error { return l.SignalAggregator(victim, syscall.SIGKILL) }, restart)
	case kind < 80:
		r.sum.faults["aggregator stopped"]++
		r.harm(victim, "is stopped", d, func() error { return l.SignalAggregator(victim, syscall.SIGSTOP) },
			func() error { return l.SignalAggregator(victim, syscall.SIGCONT) })
	default:
		r.sum.faults["aggregator restarted"]++
		r.harm(victim, "is restarted", 0, func() error { return nil }, restart)
	}
}

// harm begins a fault of an aggregator, and ends it after a while.
func (r *runner) harm(victim, what string, d time.Duration, begin, end func() error) {
	r.record("the aggregator in %s %s for %v", victim, what, d.Round(time.Millisecond))
	if err := begin(); err != nil {
		r.violation("the aggregator in %s: %v", victim, err)
	}
	r.schedule(d, func() {
		if err := end(); err != nil {
			r.violation("the aggregator in %s: %v", victim, err)
		}
		r.record("the aggregator in %s works again", victim)
		delete(r.harmed, victim)
	})
}
