//go:build !linux

package engine

import "time"

// nap waits for so long.
func nap(d time.Duration) { time.Sleep(d) }

func relax() {}
