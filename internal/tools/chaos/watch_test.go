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
		r := &rank{limit: time.Second}
		start := time.Now()
		var after time.Duration // time of the report
		go r.watch(func() { after = time.Since(start) })
		for range 5 {
			r.startWatch("allgather")
			time.Sleep(r.limit - tick)
			r.stopWatch()
			time.Sleep(2 * r.limit) // between calls there is no limit
		}
		synctest.Wait()
		if after != 0 {
			t.Fatalf("reported after %v, and every call was short", after)
		}
		began := time.Since(start)
		r.startWatch("barrier")
		time.Sleep(2 * r.limit)
		synctest.Wait()
		if took := after - began; took < r.limit || took > r.limit+2*tick {
			t.Errorf("reported %v after the start of the call, want about %v", took, r.limit)
		}
	})
}
