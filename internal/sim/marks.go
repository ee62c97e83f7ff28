package sim

import (
	"bytes"
	"math/bits"
)

// marks is the receive buffer of a multicast in large runs, in one bit per chunk: whether its slot holds the
// tag that belongs there. All ranks must end with the same tags, so they share one copy of them. Other
// contents of a slot are not told apart, since all of them are wrong.
type marks struct {
	want    []byte // the right tag of each slot
	right   []uint64
	freed   bool // whether the buffer has been taken away
	written bool // whether a slot was written after that
}

func newMarks(want []byte) *marks {
	return &marks{want: want, right: make([]uint64, (len(want)/tagSize+63)/64)}
}

// tag returns the right tag of a slot.
func (m *marks) tag(slot int64) []byte { return m.want[slot*tagSize:][:tagSize] }

// write writes tags to the slots from position at on.
func (m *marks) write(at int64, tags []byte) {
	m.written = m.written || m.freed
	for slot := at / tagSize; len(tags) > 0; slot++ {
		word, bit := &m.right[slot/64], uint64(1)<<(slot%64)
		if bytes.Equal(tags[:tagSize], m.tag(slot)) {
			*word |= bit
		} else {
			*word &^= bit
		}
		tags = tags[tagSize:]
	}
}

// appendTo appends the tags of positions [at, end). A wrong tag differs from the right one in every bit.
func (m *marks) appendTo(to []byte, at, end int64) []byte {
	for slot := at / tagSize; slot < end/tagSize; slot++ {
		to = append(to, m.tag(slot)...)
		if m.right[slot/64]&(1<<(slot%64)) == 0 {
			for i := len(to) - tagSize; i < len(to); i++ {
				to[i] = ^to[i]
			}
		}
	}
	return to
}

// complete reports whether every slot holds the right tag.
func (m *marks) complete() bool {
	n := 0
	for _, w := range m.right {
		n += bits.OnesCount64(w)
	}
	return n == len(m.want)/tagSize
}

// free takes the buffer away. Its slots hold garbage from now on.
func (m *marks) free() {
	clear(m.right)
	m.freed = true
}
