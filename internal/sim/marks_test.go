package sim

import (
	"bytes"
	"testing"
)

// A slot is right only after its own tag was written last.
func TestMarks(t *testing.T) {
	t.Parallel()
	const slots = 130
	want := make([]byte, slots*tagSize)
	for i := range want {
		want[i] = byte(i / tagSize)
	}
	m := newMarks(want)
	read := func(slot int64) []byte { return m.appendTo(nil, slot*tagSize, (slot+1)*tagSize) }
	if m.complete() || bytes.Equal(read(5), m.tag(5)) {
		t.Fatal("right before the first write")
	}
	m.write(0, want)
	if !m.complete() || !bytes.Equal(m.appendTo(nil, 0, slots*tagSize), want) {
		t.Fatal("wrong after all tags were written")
	}
	m.write(100*tagSize, m.tag(101)) // the neighbour's tag
	if m.complete() || bytes.Equal(read(100), m.tag(100)) {
		t.Error("right with another slot's tag")
	}
	m.write(100*tagSize, read(100)) // what another rank read from a wrong slot
	if m.complete() {
		t.Error("right with garbage")
	}
	m.write(100*tagSize, m.tag(100))
	if !m.complete() {
		t.Error("wrong after the right tag was written again")
	}
	if m.free(); m.complete() || m.written || bytes.Equal(read(0), m.tag(0)) {
		t.Error("readable after it was freed")
	}
	if m.write(0, m.tag(0)); !m.written {
		t.Error("no trace of a write after it was freed")
	}
}

// Runs with tags give the same results as runs that move payload.
func TestTagsChangeNothing(t *testing.T) {
	t.Parallel()
	for s := uint64(1); s <= fewer(uint64(*seeds/8)); s++ {
		cfg := randomConfig(s)
		want := resultText(t, cfg)
		cfg.tags = true
		if got := resultText(t, cfg); got != want {
			t.Fatalf("seed %d, with tags:\n%s\nwith payload:\n%s", s, got, want)
		}
	}
}
