package fault

import (
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/allcast/allcast/internal/fabric"
	"github.com/allcast/allcast/internal/wire"
)

// Wrap returns m with the faults of a Spec in its receivers. Ranks that share a seed draw different
// faults.
func Wrap(m fabric.Multicast, s Spec, rank int) fabric.Multicast {
	if m == nil || s == (Spec{Seed: s.Seed}) {
		return m
	}
	f := &multicast{Multicast: m}
	for stream := range m.Streams() {
		f.recv = append(f.recv, &receiver{
			Receiver: m.Receiver(stream), spec: s,
			rng: rand.New(rand.NewPCG(s.Seed, uint64(rank)<<16|uint64(stream))),
		})
	}
	return f
}

type multicast struct {
	fabric.Multicast
	recv []*receiver
}

func (m *multicast) Receiver(stream int) fabric.Receiver { return m.recv[stream] }

const (
	maxDisplacement = 16               // datagrams that may overtake a held one
	maxHold         = time.Millisecond // time that a datagram is held if nothing overtakes it
)

type fate uint8

const (
	pass fate = iota
	drop
	double
	hold
	damage
)

// receiver decides the fate of every datagram. It sits between a Receiver and its Sink.
type receiver struct {
	fabric.Receiver
	spec    Spec
	rng     *rand.Rand
	sink    fabric.Sink
	clean   int  // number of the next datagrams that pass without another draw
	decided fate // fate of the datagram after them, unless it is pass
	inPlace int  // datagrams in place that have not been counted for the held ones
	held    []datagram
	spare   [][]byte
	slots   [][]byte // of the last Expect
	scratch []byte
	dropped atomic.Uint64
}

type datagram struct {
	header  wire.Header
	payload []byte
	places  int // datagrams that may still overtake it
	since   time.Time
}

// Stats adds the injected losses.
func (r *receiver) Stats() fabric.ReceiverStats {
	s := r.Receiver.Stats()
	s.Dropped += r.dropped.Load()
	return s
}

func (r *receiver) Receive(s fabric.Sink) error {
	r.sink = s
	return r.Receiver.Receive(r)
}

func (r *receiver) Attach(p fabric.Poller, s fabric.Sink, failed func(error)) bool {
	r.sink = s
	return r.Receiver.Attach(p, r, failed)
}

// draw draws the fate of a datagram. The faults of a Spec are in the order of the fates.
func (r *receiver) draw() fate {
	x, sum := r.rng.Float64(), 0.0
	for i, p := range [...]float64{r.spec.Drop, r.spec.Dup, r.spec.Reorder, r.spec.Corrupt} {
		if sum += p; x < sum {
			return drop + fate(i)
		}
	}
	return pass
}

func (r *receiver) Expect(slots [][]byte) int {
	r.catchUp()
	n := r.sink.Expect(slots)
	r.slots = slots[:n]
	return n
}

// Arrived lets datagrams stay in place up to the first one with a fault. A damaged
// one is damaged in place.
func (r *receiver) Arrived(h []wire.Header) int {
	n := 0
	for r.decided = pass; n < len(h); n++ {
		if r.decided = r.draw(); r.decided == damage {
			r.flip(r.slots[n])
			r.decided = pass
		} else if r.decided != pass {
			break
		}
	}
	taken := r.sink.Arrived(h[:n])
	// The others are still in slots, perhaps in those where held datagrams belong.
	r.inPlace += taken
	r.clean = n - taken
	return taken
}

// catchUp counts the datagrams in place for the held ones, now that no slot is in use.
func (r *receiver) catchUp() {
	for ; r.inPlace > 0; r.inPlace-- {
		r.passed()
	}
}

func (r *receiver) Chunk(h wire.Header, payload []byte) {
	r.catchUp()
	f := r.decided
	switch {
	case r.clean > 0:
		r.clean--
		f = pass
	case f != pass:
		r.decided = pass
	default:
		f = r.draw()
	}
	switch f {
	case drop:
		r.dropped.Add(1)
		return
	case double:
		r.keep(h, payload)
	case hold:
		r.keep(h, payload)
		return
	case damage:
		h, payload = r.damage(h, payload)
	case pass:
	}
	r.sink.Chunk(h, payload)
	r.passed()
}

// flip flips a random bit.
func (r *receiver) flip(b []byte) {
	if len(b) > 0 {
		b[r.rng.IntN(len(b))] ^= 1 << r.rng.IntN(8)
	}
}

// damage flips a bit of a datagram, sometimes in the header. It copies the payload, which belongs to
// the Receiver.
func (r *receiver) damage(h wire.Header, payload []byte) (wire.Header, []byte) {
	const heads = 8 // one header in this many datagrams
	if len(payload) > 0 && r.rng.IntN(heads) > 0 {
		r.scratch = append(r.scratch[:0], payload...)
		r.flip(r.scratch)
		return h, r.scratch
	}
	var b [wire.HeaderSize + wire.SumSize]byte
	h.PutSum(b[:])
	r.flip(b[:])
	return wire.ParseSum(b[:]), payload
}

func (r *receiver) keep(h wire.Header, payload []byte) {
	var b []byte
	if n := len(r.spare); n > 0 {
		b, r.spare = r.spare[n-1], r.spare[:n-1]
	}
	r.held = append(r.held, datagram{h, append(b[:0], payload...), 1 + r.rng.IntN(maxDisplacement), time.Now()})
}

// passed counts a datagram that has overtaken the held ones.
func (r *receiver) passed() {
	for i := range r.held {
		r.held[i].places--
	}
	r.release(func(d *datagram) bool { return d.places <= 0 })
}

func (r *receiver) release(due func(*datagram) bool) {
	kept := r.held[:0]
	for i := range r.held {
		if d := &r.held[i]; due(d) {
			r.sink.Chunk(d.header, d.payload)
			r.spare = append(r.spare, d.payload)
		} else {
			kept = append(kept, *d)
		}
	}
	r.held = kept
}

// Idle releases datagrams that nothing overtook for maxHold.
func (r *receiver) Idle() {
	r.catchUp()
	if len(r.held) > 0 {
		now := time.Now()
		r.release(func(d *datagram) bool { return now.Sub(d.since) >= maxHold })
	}
	if len(r.held) > 0 {
		time.AfterFunc(maxHold, r.Wake)
	}
	r.sink.Idle()
}
