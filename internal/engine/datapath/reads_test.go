package datapath

import (
	"bytes"
	"slices"
	"testing"

	"github.com/allcast/allcast/internal/fabric"
)

// A chunk has one claimant: an answer is not placed unless the receive worker has claimed its chunks.
func TestAnswersBeforeTheQuestion(t *testing.T) {
	d, _ := bare(t)
	mem := make([]byte, 100)
	op := &Operation{d: d, bufs: &Buffers{mem: &mem}}
	answer := func() {
		d.ReadData(1, fabric.ReadID{Op: op.Key, ID: 1}, 0, &fabric.Buffer{B: []byte{1, 2, 3}})
	}
	if answer(); mem[0] != 0 {
		t.Error("it was placed before it was asked for")
	}
	d.reads.add(1, &read{id: 1, op: op, peer: 1, spans: []fabric.Span{{Off: 0, Len: 10}}, size: 10})
	if answer(); mem[0] != 1 {
		t.Error("it was not placed after it was asked for")
	}
	// An operation that has failed is not written to any more.
	d.reads.add(1, &read{id: 1, op: op, peer: 1, spans: []fabric.Span{{Off: 0, Len: 10}}, size: 10})
	op.pins.close()
	mem[0] = 0
	if answer(); mem[0] != 0 {
		t.Error("it was placed after the operation had failed")
	}
}

// An answer goes to the spans that were asked for, whatever parts it comes in.
func TestAnswersAreScattered(t *testing.T) {
	for _, part := range []int{1, 3, 7, 30} {
		mem := make([]byte, 100)
		op := &Operation{bufs: &Buffers{mem: &mem}}
		r := &read{
			op: op, landing: &landing{op: op}, size: 21,
			spans: []fabric.Span{{Off: 5, Len: 10}, {Off: 40, Len: 1}, {Off: 90, Len: 10}},
		}
		sent := make([]byte, r.size)
		for i := range sent {
			sent[i] = byte(i + 1)
		}
		for off := 0; off < len(sent); off += part {
			last, err := r.answered(int64(off), sent[off:min(off+part, len(sent))])
			if err != nil || last != (off+part >= len(sent)) {
				t.Fatalf("parts of %d: at %d last %v, %v", part, off, last, err)
			}
		}
		if _, err := r.answered(r.size, []byte{1}); err == nil {
			t.Error("more than was asked for is taken")
		}
		got := slices.Concat(mem[5:15], mem[40:41], mem[90:])
		if !bytes.Equal(got, sent) || mem[4]|mem[15]|mem[39]|mem[41]|mem[89] != 0 {
			t.Errorf("parts of %d: %v", part, mem)
		}
	}
}
