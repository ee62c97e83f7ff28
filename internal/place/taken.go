package place

import "sync/atomic"

// Taken counts the datagrams that the receive workers of a process have taken off their queues. It
// is ahead of their reports.
type Taken struct{ n atomic.Uint64 }

// Add counts n more.
func (t *Taken) Add(n uint64) { t.n.Add(n) }

// Count is how many there were.
func (t *Taken) Count() uint64 { return t.n.Load() }
