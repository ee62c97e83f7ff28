package ip

import (
	"github.com/allcast/allcast/internal/fabric"
	"github.com/allcast/allcast/internal/wire"
)

// mcastScatter is the memory that one receive call scatters to: header, slot, header, slot, and so on.
// The stage at the end takes the rest, so that nothing is truncated. The slots are where the sink
// expects the payloads. If the sink is right, the payloads are in place and nothing is copied.
type mcastScatter struct {
	slots   [][]byte      // of the last Expect
	room    [][]byte      // memory of slots
	size    int           // size of a header
	heads   []byte        // one per slot
	headers []wire.Header // decoded
	// Twice the size of a super-packet. The kernel fills it from the middle on. Payloads that leave
	// their slots go right in front of the middle, so that they and the rest are contiguous.
	stage []byte
}

func newMcastScatter(head, batch int) *mcastScatter {
	return &mcastScatter{
		room:    make([][]byte, batch),
		size:    head,
		heads:   make([]byte, batch*head),
		headers: make([]wire.Header, batch),
		stage:   make([]byte, 2*mcastStage),
	}
}

func (v *mcastScatter) expect(s fabric.Sink) {
	n := s.Expect(v.room)
	v.slots = v.room[:max(0, min(n, len(v.room)))]
}

// forget drops the references to the slots, which are users' memory.
func (v *mcastScatter) forget() {
	clear(v.slots)
	v.slots = v.slots[:0]
}

func (v *mcastScatter) head(i int) []byte { return v.heads[i*v.size:][:v.size:v.size] }

func (v *mcastScatter) overflow() []byte { return v.stage[mcastStage:] }

// deliver hands the n received bytes to the sink: datagrams of seg bytes each, the last perhaps shorter.
// It returns how many there were, and how many were too short for a header.
func (v *mcastScatter) deliver(s fabric.Sink, n, seg int) (good, malformed int) {
	if n == 0 {
		return 0, 1 // an empty datagram
	}
	if seg <= 0 || seg > n {
		seg = n
	}
	// Count the datagrams that fill their slots. Behind one that does not, all are misplaced.
	filled := 0
	for off := 0; filled < len(v.slots) && off < n; filled++ {
		size := min(seg, n-off)
		if size != v.size+len(v.slots[filled]) {
			break
		}
		v.headers[filled] = mcastParse(v.head(filled))
		off += size
	}
	taken := 0
	if filled > 0 {
		taken = max(0, min(s.Arrived(v.headers[:filled]), filled))
	}
	good = taken
	// All others leave their slots before the first one is handed over: one may belong to the slot
	// where another is now ([5,6,7] receives [6,7,5]).
	for rest := v.gather(min(n, taken*seg), n); len(rest) > 0; {
		d := rest[:min(seg, len(rest))]
		rest = rest[len(d):]
		if len(d) < v.size {
			malformed++
			continue
		}
		good++
		s.Chunk(mcastParse(d[:v.size]), d[v.size:])
	}
	return good, malformed
}

// gather makes the bytes from start to n contiguous in the stage, and returns them.
func (v *mcastScatter) gather(start, n int) []byte {
	spread := len(v.slots) * v.size
	for _, s := range v.slots {
		spread += len(s)
	}
	if start >= spread {
		return v.stage[mcastStage+start-spread : mcastStage+n-spread]
	}
	end := min(n, spread)
	first := mcastStage - (end - start)
	at := first
	pos := 0 // position of the current region in the stream
	for i, slot := range v.slots {
		for _, region := range [2][]byte{v.head(i), slot} {
			skip := max(0, min(start-pos, len(region)))
			at += copy(v.stage[at:mcastStage], region[skip:])
			pos += len(region)
		}
	}
	return v.stage[first : mcastStage+n-end]
}
