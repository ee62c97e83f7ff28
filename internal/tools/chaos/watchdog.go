//go:build linux

package main

import (
	"sync/atomic"
	"time"
)

// tick is the watchdog's interval. The watchdog counts intervals, not time, because a process that was
// stopped has done nothing wrong.
const tick = 100 * time.Millisecond

// watchdog detects calls that do not end.
type watchdog struct {
	limit    time.Duration // time limit of a call
	ticks    atomic.Int64
	callTick atomic.Int64 // tick at which the current call started; 0 if none is running
}

func (w *watchdog) callStarts()  { w.callTick.Store(w.ticks.Load() + 1) }
func (w *watchdog) callReturns() { w.callTick.Store(0) }

// watch calls hung, once, if a call does not end within the limit.
func (w *watchdog) watch(hung func()) {
	for range time.Tick(tick) {
		n := w.ticks.Add(1)
		if b := w.callTick.Load(); b != 0 && time.Duration(n-b)*tick > w.limit {
			hung()
			return
		}
	}
}
