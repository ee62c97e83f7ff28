package sim

// eventKind is the kind of an event.
type eventKind uint8

const (
	evArrive  eventKind = iota // pkt arrives over link id
	evLink                     // link id becomes free
	evSent                     // the batch that ends with pkt has left host id
	evDeliver                  // pkt reaches host id after an extra delay
	evTimer                    // the timer of host id's node expires
	evWake                     // host id's processor becomes free
	evStart                    // the host of starts[id] makes its call
	evStall                    // the host of Stalls[id] stops for a while
	evDetour                   // host id's processor is interrupted for a moment
	evCrash                    // the host of Crashes[id] stops for good
	evDrain                    // the datagrams of drains[id] have left the network
	evStep                     // a training step continues
	evReport                   // the oldest report of host id's receive workers reaches its control thread
	evClaim                    // host id's receive worker claims chunks for its oldest read
)

// event is a scheduled event. at is virtual time in picoseconds, fine enough for one byte at a terabit
// per second. seq keeps simultaneous events in order.
type event struct {
	at   int64
	seq  uint64
	pkt  *packet
	id   int32
	kind eventKind
}

// eventHeap is a 4-ary min-heap. It is flatter than a binary heap, and four children share two cache
// lines.
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
		first := c
		for k := c + 1; k < min(c+4, n); k++ {
			if h.ev[k].before(&h.ev[first]) {
				first = k
			}
		}
		if !h.ev[first].before(&e) {
			break
		}
		h.ev[i] = h.ev[first]
		i = first
	}
	h.ev[i] = e
	return top
}
