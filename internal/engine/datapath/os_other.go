//go:build !linux

package datapath

import "time"

func nap(d time.Duration) { time.Sleep(d) }

// Relax does nothing.
func (*Polling) Relax() {}

// pin does nothing: this system cannot bind a thread.
func (d *Datapath) pin() {
	if len(d.cfg.Pin) > 0 && d.workers.pinned.Add(1) == 1 {
		d.cfg.Logger.Warn("workers cannot be bound to processors on this system")
	}
}

func mapMemory(n int) ([]byte, error) { return make([]byte, n), nil }

func unmapMemory([]byte) error { return nil }
