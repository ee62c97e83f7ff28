package sim

import "time"

// Progress says how far a run is.
type Progress struct {
	Time  time.Duration // virtual time
	Share float64       // estimated share of the run that is done, 0 to 1
}

// progressEvents is the number of events between two reports of progress: some milliseconds of real time.
const progressEvents = 1 << 16

// progressOf estimates the progress of all calls. The measure is the number of packets that have arrived at
// hosts. Algorithms that forward data have more of them than the least that the collective needs.
func (w *world) progressOf() Progress {
	var arrived, all int64
	for _, c := range w.calls {
		arrived += c.arrived
		all += c.toReceive()
	}
	p := Progress{Time: time.Duration(w.now / 1000)}
	if all > 0 {
		p.Share = min(1, float64(arrived)/float64(all))
	}
	return p
}
