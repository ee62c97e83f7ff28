package wire

import (
	"bytes"
	"hash/crc32"
	"slices"
	"testing"
)

func TestChecksum(t *testing.T) {
	h := Header{Token: 1 << 60, Comm: 3, Imm: 7}
	payload := []byte("some payload")
	sum := h.Checksum(payload)
	b := make([]byte, HeaderSize)
	h.Put(b)
	if want := crc32.Checksum(slices.Concat(b, payload), crc32.MakeTable(crc32.Castagnoli)); sum != want {
		t.Errorf("%#x, want %#x", sum, want)
	}
	with := h
	with.Sum = 9
	if with.Checksum(payload) != sum {
		t.Error("the sum is part of itself")
	}
	for _, o := range []Header{
		{Token: 1<<60 + 1, Comm: 3, Imm: 7}, {Token: 1 << 60, Comm: 2, Imm: 7}, {Token: 1 << 60, Comm: 3, Imm: 6},
	} {
		if o.Checksum(payload) == sum {
			t.Errorf("%+v has the same sum", o)
		}
	}
	for i := range payload {
		b := bytes.Clone(payload)
		b[i] ^= 1
		if h.Checksum(b) == sum {
			t.Errorf("a change of byte %d is not found", i)
		}
	}
	if n := testing.AllocsPerRun(100, func() { h.Checksum(payload) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

func FuzzHeader(f *testing.F) {
	f.Add(make([]byte, HeaderSize+SumSize))
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) < HeaderSize+SumSize {
			return
		}
		got := make([]byte, HeaderSize+SumSize)
		ParseSum(b).PutSum(got)
		if !bytes.Equal(got, b[:len(got)]) {
			t.Errorf("%x became %x", b[:len(got)], got)
		}
		if h := ParseHeader(b); h.Sum != 0 {
			t.Error("a sum came from nowhere")
		}
	})
}
