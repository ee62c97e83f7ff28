//go:build !linux

package engine

// pin does nothing here: the system offers no way to bind a thread.
func (e *Engine) pin() {
	if len(e.cfg.Pin) > 0 && e.pinned.Add(1) == 1 {
		e.log.Warn("workers cannot be bound to processors on this system")
	}
}
