//go:build !linux

package datapath

// pin does nothing: this system cannot bind a thread.
func (d *Datapath) pin() {
	if len(d.cfg.Pin) > 0 && d.workers.pinned.Add(1) == 1 {
		d.cfg.Log.Warn("workers cannot be bound to processors on this system")
	}
}
