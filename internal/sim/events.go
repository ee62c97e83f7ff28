package sim

// eventKind is the kind of an event.
type eventKind uint8

const (
	evArrive     eventKind = iota // pkt arrives over link id
	evLink                        // link id becomes free
	evSent                        // the batch that ends with pkt has left host id
	evDeliver                     // pkt reaches host id after an extra delay
	evTimer                       // the timer of host id's node expires
	evWake                        // host id's processor becomes free
	evStart                       // the host of starts[id] makes its call
	evStall                       // the host of Stalls[id] stops for a while
	evDetour                      // host id's processor is interrupted for a moment
	evCrash                       // the host of Crashes[id] stops for good
	evDrain                       // the datagrams of drains[id] have left the network
	evStep                        // a training step continues
	evReport                      // the oldest report of host id's receive workers reaches its control thread
	evClaim                       // host id's receive worker claims chunks for its oldest read
	evSum                         // pkt reaches aggregator id after an extra delay
	evSummed                      // the control thread of host id learns of the sum pkt
	evForeign                     // foreign flow id sends its next packet
	evAggregator                  // something happens to the aggregator of aggregatorFaults[id]
)

// event is a scheduled event. The queue holds its time.
type event struct {
	pkt  *packet
	id   int32
	kind eventKind
}

// instant is a list of events at one point of virtual time, in the order in which they were scheduled.
type instant struct {
	at     int64
	events []event
	next   int // index of the next event
}

// eventQueue returns events in the order of their times, and simultaneous events in the order in which
// they were scheduled. Times are virtual, in picoseconds: fine enough for one byte at a terabit per
// second.
//
// Collectives on regular networks have many simultaneous events: the copies of a multicast packet reach
// all hosts at the same distance together. The queue therefore sorts instants, not events.
type eventQueue struct {
	heap     []queuedInstant // 4-ary min-heap; four children share two cache lines
	instants []instant       // by number
	unused   []int32         // numbers of unused instants
	current  int32           // instant that pop empties, or noInstant
	created  uint64          // number of instants created

	// open holds instants that still accept events, by a hash of their time. A later instant of the same
	// hash closes the earlier one. The queue may thus hold several instants of the same time. Only the
	// last one accepts events, so they stay in order.
	open [256]int32
}

// queuedInstant orders an instant. seq keeps instants of the same time in order.
type queuedInstant struct {
	at  int64
	seq uint64
	i   int32
}

const noInstant = -1

func newEventQueue() eventQueue {
	q := eventQueue{current: noInstant}
	for i := range q.open {
		q.open[i] = noInstant
	}
	return q
}

func (a *queuedInstant) before(b *queuedInstant) bool {
	return a.at < b.at || (a.at == b.at && a.seq < b.seq)
}

// slot returns the place in open of instants of a time.
func (q *eventQueue) slot(at int64) *int32 {
	return &q.open[uint64(at)*0x9e3779b97f4a7c15>>56]
}

func (q *eventQueue) push(at int64, kind eventKind, id int32, pkt *packet) {
	slot := q.slot(at)
	i := *slot
	if i == noInstant || q.instants[i].at != at {
		i = q.create(at)
		*slot = i
	}
	t := &q.instants[i]
	t.events = append(t.events, event{pkt: pkt, id: id, kind: kind})
}

// create adds an instant to the heap and returns its number.
func (q *eventQueue) create(at int64) int32 {
	var i int32
	if n := len(q.unused); n > 0 {
		i = q.unused[n-1]
		q.unused = q.unused[:n-1]
		q.instants[i].at = at
	} else {
		i = int32(len(q.instants))
		q.instants = append(q.instants, instant{at: at})
	}
	q.created++
	x := queuedInstant{at: at, seq: q.created, i: i}
	k := len(q.heap)
	q.heap = append(q.heap, x)
	for k > 0 {
		up := (k - 1) / 4
		if !x.before(&q.heap[up]) {
			break
		}
		q.heap[k] = q.heap[up]
		k = up
	}
	q.heap[k] = x
	return i
}

// pop removes the next event. It returns false if there is none.
func (q *eventQueue) pop() (e event, at int64, ok bool) {
	if q.current == noInstant {
		if len(q.heap) == 0 {
			return event{}, 0, false
		}
		q.current = q.removeFirst()
	}
	t := &q.instants[q.current]
	e, at = t.events[t.next], t.at
	if t.next++; t.next == len(t.events) {
		q.finish(t)
	}
	return e, at, true
}

// finish recycles the current instant. Events that are scheduled for the same time from now on get an
// instant of their own.
func (q *eventQueue) finish(t *instant) {
	if slot := q.slot(t.at); *slot == q.current {
		*slot = noInstant
	}
	t.events, t.next = t.events[:0], 0
	q.unused = append(q.unused, q.current)
	q.current = noInstant
}

// removeFirst removes the first instant from the heap.
func (q *eventQueue) removeFirst() int32 {
	top := q.heap[0].i
	n := len(q.heap) - 1
	x := q.heap[n]
	q.heap = q.heap[:n]
	if n == 0 {
		return top
	}
	k := 0
	for {
		c := 4*k + 1
		if c >= n {
			break
		}
		first := c
		for j := c + 1; j < min(c+4, n); j++ {
			if q.heap[j].before(&q.heap[first]) {
				first = j
			}
		}
		if !q.heap[first].before(&x) {
			break
		}
		q.heap[k] = q.heap[first]
		k = first
	}
	q.heap[k] = x
	return top
}
