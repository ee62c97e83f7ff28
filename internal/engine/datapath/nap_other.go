//go:build !linux

package datapath

import "time"

// nap sleeps for d.
func nap(d time.Duration) { time.Sleep(d) }
