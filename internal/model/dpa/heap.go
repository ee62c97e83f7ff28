package dpa

// event is when a worker goes on. Each has one at a time.
type event struct {
	at     int64
	worker int
}

// before orders events of the same cycle by worker, so that a run is reproducible.
func (e event) before(o event) bool {
	return e.at < o.at || e.at == o.at && e.worker < o.worker
}

// eventHeap is a binary heap, earliest first.
type eventHeap struct{ ev []event }

func (h *eventHeap) push(e event) {
	h.ev = append(h.ev, e)
	i := len(h.ev) - 1
	for i > 0 {
		up := (i - 1) / 2
		if !e.before(h.ev[up]) {
			break
		}
		h.ev[i] = h.ev[up]
		i = up
	}
	h.ev[i] = e
}

func (h *eventHeap) pop() event {
	top := h.ev[0]
	n := len(h.ev) - 1
	e := h.ev[n]
	h.ev = h.ev[:n]
	i := 0
	for {
		down := 2*i + 1
		if down >= n {
			break
		}
		if down+1 < n && h.ev[down+1].before(h.ev[down]) {
			down++
		}
		if !h.ev[down].before(e) {
			break
		}
		h.ev[i] = h.ev[down]
		i = down
	}
	if n > 0 {
		h.ev[i] = e
	}
	return top
}
