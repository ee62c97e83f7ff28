package place

import "sync/atomic"

// Taken counts the datagrams that the receive workers of a process have taken from their queues. It
// is ahead of their reports.
type Taken struct{ n atomic.Uint64 }

// Add counts n more datagrams.
func (t *Taken) Add(n uint64) { t.n.Add(n) }

// Count returns the number of datagrams taken.
func (t *Taken) Count() uint64 { return t.n.Load() }
