//go:build linux

package main

import (
	"testing"
	"testing/synctest"
	"time"
)

// The watchdog reports a call that exceeds the limit, and no shorter ones, however many there are.
func TestWatchdog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &watchdog{limit: time.Second}
		start := time.Now()
		var after time.Duration // time of the report
		go w.watch(func() { after = time.Since(start) })
		for range 5 {
			w.callStarts()
			time.Sleep(w.limit - tick)
			w.callReturns()
			time.Sleep(2 * w.limit) // between calls there is no limit
		}
		synctest.Wait()
		if after != 0 {
			t.Fatalf("reported after %v, and every call was short", after)
		}
		began := time.Since(start)
		w.callStarts()
		time.Sleep(2 * w.limit)
		synctest.Wait()
		if took := after - began; took < w.limit || took > w.limit+2*tick {
			t.Errorf("reported %v after the start of the call, want about %v", took, w.limit)
		}
	})
}
