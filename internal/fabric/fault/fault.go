package fault

import (
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/allcast/allcast/internal/fabric"
)

// Wrap returns m with the faults of a Spec at its receivers. rank makes ranks that
// share a seed differ.
func Wrap(m fabric.Multicast, s Spec, rank int) fabric.Multicast {
	if m == nil || s.none() {
		return m
	}
	f := &multicast{Multicast: m}
	for sub := range m.Subgroups() {
		f.recv = append(f.recv, &receiver{
			Receiver: m.Receiver(sub), spec: s,
			rng: rand.New(rand.NewPCG(s.Seed, uint64(rank)<<16|uint64(sub))),
		})
	}
	return f
}

type multicast struct {
	fabric.Multicast
	recv []*receiver
}

func (m *multicast) Receiver(sub int) fabric.Receiver { return m.recv[sub] }

// most is how many places a datagram is displaced at most, and patience how long it
// is held when nothing comes that it could let pass.
const (
	most     = 16
	patience = time.Millisecond
)

type fate uint8

const (
	pass fate = iota
	drop
	double
	hold
	damage
)

// receiver decides the fate of every datagram.
type receiver struct {
	fabric.Receiver
	spec    Spec
	rng     *rand.Rand
	sink    fabric.Sink
	clean   int  // so many of the next datagrams were decided on already: they pass
	decided fate // of the one after them, unless it is pass
	inPlace int  // so many passed, and those held have not been told
	held    []datagram
	spare   [][]byte
	slots   [][]byte // of the last Expect
	scratch []byte
	dropped atomic.Uint64
}

type datagram struct {
	header  fabric.Header
	payload []byte
	places  int // it lets so many pass
	since   time.Time
}

// Stats adds what was dropped on purpose.
func (r *receiver) Stats() fabric.ReceiverStats {
	s := r.Receiver.Stats()
	s.Dropped += r.dropped.Load()
	return s
}

// Receive implements fabric.Receiver.
func (r *receiver) Receive(s fabric.Sink) error {
	r.sink = s
	return r.Receiver.Receive(r)
}

// Attach implements fabric.Receiver.
func (r *receiver) Attach(s fabric.Sink, failed func(error)) bool {
	r.sink = s
	return r.Receiver.Attach(r, failed)
}

func (r *receiver) draw() fate {
	switch x := r.rng.Float64(); {
	case x < r.spec.Drop:
		return drop
	case x < r.spec.Drop+r.spec.Dup:
		return double
	case x < r.spec.Drop+r.spec.Dup+r.spec.Reorder:
		return hold
	case x < r.spec.Drop+r.spec.Dup+r.spec.Reorder+r.spec.Corrupt:
		return damage
	}
	return pass
}

// Expect implements fabric.Sink.
func (r *receiver) Expect(slots [][]byte) int {
	r.catchUp()
	n := r.sink.Expect(slots)
	r.slots = slots[:n]
	return n
}

// Arrived implements fabric.Sink: datagrams stay where they are up to the first
// that meets a fault. A damaged one passes, damaged where it is.
func (r *receiver) Arrived(h []fabric.Header) int {
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
	// The others are in slots still, perhaps in those where what is held belongs.
	r.inPlace += taken
	r.clean = n - taken
	return taken
}

// catchUp releases what those in place have passed, now that no slot is in use.
func (r *receiver) catchUp() {
	for ; r.inPlace > 0; r.inPlace-- {
		r.passed()
	}
}

// Chunk implements fabric.Sink.
func (r *receiver) Chunk(h fabric.Header, payload []byte) {
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

// flip flips a bit.
func (r *receiver) flip(b []byte) {
	if len(b) > 0 {
		b[r.rng.IntN(len(b))] ^= 1 << r.rng.IntN(8)
	}
}

// damage flips a bit of a datagram, in the header now and then; the payload's memory is
// not ours.
func (r *receiver) damage(h fabric.Header, payload []byte) (fabric.Header, []byte) {
	const heads = 8 // one in so many
	if len(payload) > 0 && r.rng.IntN(heads) > 0 {
		r.scratch = append(r.scratch[:0], payload...)
		r.flip(r.scratch)
		return h, r.scratch
	}
	var b [fabric.HeaderSize + fabric.SumSize]byte
	h.PutSum(b[:])
	r.flip(b[:])
	return fabric.ParseSum(b[:]), payload
}

func (r *receiver) keep(h fabric.Header, payload []byte) {
	var b []byte
	if n := len(r.spare); n > 0 {
		b, r.spare = r.spare[n-1], r.spare[:n-1]
	}
	r.held = append(r.held, datagram{h, append(b[:0], payload...), 1 + r.rng.IntN(most), time.Now()})
}

// passed counts a datagram that those held let pass.
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

// Idle implements fabric.Sink. What nobody passes is not held for ever.
func (r *receiver) Idle() {
	r.catchUp()
	if len(r.held) > 0 {
		now := time.Now()
		r.release(func(d *datagram) bool { return now.Sub(d.since) >= patience })
	}
	if len(r.held) > 0 {
		time.AfterFunc(patience, r.Wake)
	}
	r.sink.Idle()
}
