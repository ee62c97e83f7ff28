package sim

// eventKind says what happens when an event's time has come.
type eventKind uint8

const (
	evArrive  eventKind = iota // pkt has arrived over link id
	evLink                     // link id is free again
	evSent                     // the batch that ends with pkt has left host id
	evDeliver                  // pkt reaches host id after a delay of its own
	evTimer                    // host id's node wants attention
	evWake                     // host id's processor is free again
	evStart                    // host id makes its calls
	evStall                    // host id stops for a while
	evDetour                   // host id's processor does something else for a moment
	evCrash                    // host id stops for good
	evDrain                    // what drains[id] waits for has left the network
	evStep                     // a training step goes on
	evReport                   // the oldest report of host id's receive workers reaches its control thread
	evClaim                    // host id's receive worker claims chunks for its oldest read
)

// event is one thing to happen. at is virtual time in picoseconds, fine enough
// for one byte at a terabit per second; seq keeps events of one instant in order.
type event struct {
	at   int64
	seq  uint64
	pkt  *packet
	id   int32
	kind eventKind
}

// eventHeap is a 4-ary min-heap: flatter than a binary one, and four children
// share two cache lines.
type eventHeap struct {
	ev  []event
	seq uint64
}

func (a *event) before(b *event) bool {
	return a.at < b.at || (a.at == b.at && a.seq < b.seq)
}

func (h *eventHeap) push(at int64, kind eventKind, id int32, pkt *packet) {
	h.seq++
	e := event{at: at, seq: h.seq, pkt: pkt, id: id, kind: kind}
	i := len(h.ev)
	h.ev = append(h.ev, e)
	for i > 0 {
		up := (i - 1) / 4
		if !e.before(&h.ev[up]) {
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
	if n == 0 {
		return top
	}
	i := 0
	for {
		c := 4*i + 1
		if c >= n {
			break
		}
		least := c
		for k := c + 1; k < min(c+4, n); k++ {
			if h.ev[k].before(&h.ev[least]) {
				least = k
			}
		}
		if !h.ev[least].before(&e) {
			break
		}
		h.ev[i] = h.ev[least]
		i = least
	}
	h.ev[i] = e
	return top
}
