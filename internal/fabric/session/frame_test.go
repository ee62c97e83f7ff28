package session

import (
	"bytes"
	"errors"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/allcast/allcast/internal/fabric"
)

var op = fabric.OpKey{Comm: 1 << 31, Seq: 1 << 63}

var streamSamples = []Frame{
	{Kind: Message, N: 5},
	{Kind: Data, N: 3, Op: op, Nth: 3, Len: 10, Off: 7},
	{Kind: Data, Op: op},
	{Kind: Read, N: 3 * SpanSize, Op: op, ID: 5},
	{Kind: Answer, N: 1, Op: op, ID: 6, Len: 2, Off: 1},
	{Kind: Goodbye},
}

var slotSamples = []Frame{
	{Kind: Message, N: 3, Grant: 7},
	{Kind: Data, N: 3, Op: op, Nth: 3, Len: 10, Off: 7},
	{Kind: Ask, Op: op},
	{Kind: Here, No: true, RKey: 9, ID: 1 << 60, Len: 1 << 40},
	{Kind: Check, Op: op, ID: 2},
	{Kind: Checked, Op: op, ID: 2},
	{Kind: Revoke, Op: op},
	{Kind: Revoked, Op: op},
	{Kind: Credit, Grant: 1<<32 - 1},
	{Kind: Goodbye},
}

// checkRange checks what both decoders promise.
func checkRange(t *testing.T, f *Frame) {
	t.Helper()
	part := f.Kind == Data || f.Kind == Answer
	if f.N < 0 || f.N > MaxPart || f.Len < 0 || f.Off < 0 || !part && f.Len > math.MaxInt64-f.Off {
		t.Fatalf("%+v is out of range", f)
	}
	if part && (f.Off > f.Len || int64(f.N) > f.Len-f.Off) {
		t.Fatalf("%+v ends behind its piece", f)
	}
}

// A frame that the stream decoder takes is in range, and encodes to the same bytes.
func FuzzParseStream(f *testing.F) {
	for i := range streamSamples {
		f.Add(streamSamples[i].AppendStream(nil))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) < StreamPrefix {
			return
		}
		n, err := StreamSize(b)
		if err != nil {
			if !errors.Is(err, ErrMalformed) {
				t.Fatal(err)
			}
			return
		}
		if n > StreamMaxHeader || len(b) < n {
			return
		}
		h, err := ParseStream(b[:n])
		if err != nil {
			if !errors.Is(err, ErrMalformed) {
				t.Fatal(err)
			}
			return
		}
		checkRange(t, &h)
		if again := h.AppendStream(nil); !bytes.Equal(again, b[:n]) {
			t.Errorf("%x became %x", b[:n], again)
		}
	})
}

// A frame that the slot decoder takes is in range, and encodes to the same bytes.
func FuzzParseSlot(f *testing.F) {
	for i := range slotSamples {
		b := make([]byte, SlotHeader+slotSamples[i].N)
		slotSamples[i].PutSlot(b)
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		h, payload, err := ParseSlot(b)
		if err != nil {
			if !errors.Is(err, ErrMalformed) {
				t.Fatal(err)
			}
			return
		}
		checkRange(t, &h)
		again := make([]byte, len(b))
		h.PutSlot(again)
		copy(again[SlotHeader:], payload)
		if h.N != len(payload) || !bytes.Equal(again, b) {
			t.Errorf("%x became %x", b, again)
		}
	})
}

// A list of spans that the decoder takes is in range, and encodes to the same bytes.
func FuzzParseSpans(f *testing.F) {
	f.Add(AppendSpans(nil, []fabric.Span{{Off: 1, Len: 2}, {Off: 1 << 40, Len: 0}}))
	f.Fuzz(func(t *testing.T, b []byte) {
		spans, err := ParseSpans(b)
		if err != nil {
			if !errors.Is(err, ErrMalformed) {
				t.Fatal(err)
			}
			return
		}
		for _, s := range spans {
			if s.Off < 0 || s.Len < 0 || s.Off+s.Len < 0 {
				t.Fatalf("%+v is out of range", s)
			}
		}
		if again := AppendSpans(nil, spans); !bytes.Equal(again, b) {
			t.Errorf("%x became %x", b, again)
		}
	})
}

func TestRoundTrip(t *testing.T) {
	for _, want := range streamSamples {
		b := want.AppendStream(nil)
		if n, err := StreamSize(b); err != nil || n != len(b) {
			t.Errorf("%+v has %d bytes, announced %d (%v)", want, len(b), n, err)
		}
		if got, err := ParseStream(b); err != nil || got != want {
			t.Errorf("%+v became %+v (%v)", want, got, err)
		}
	}
	for _, want := range slotSamples {
		b := make([]byte, SlotHeader+want.N)
		want.PutSlot(b)
		if got, _, err := ParseSlot(b); err != nil || got != want {
			t.Errorf("%+v became %+v (%v)", want, got, err)
		}
	}
}

// Order takes pieces whose parts follow each other, whole or cancelled between two parts, and
// nothing else.
func TestOrder(t *testing.T) {
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 1))
		var o Order
		var last Frame // the part before, or none
		for range 200 {
			f := Frame{Kind: Data, Op: op, Nth: uint32(rng.IntN(3)), Len: int64(rng.IntN(20)), Grant: rng.Uint32()}
			if rng.IntN(4) == 0 {
				f.Kind = Answer
			}
			follows := last.Kind != None && last.Off+int64(last.N) < last.Len
			if follows && rng.IntN(4) > 0 {
				f.Kind, f.Nth, f.Len = last.Kind, last.Nth, last.Len
				f.Off = last.Off + int64(last.N)
			} else if f.Len > 0 && rng.IntN(8) == 0 {
				f.Off = rng.Int64N(f.Len)
			}
			if f.Len > 0 {
				f.N = 1 + rng.IntN(int(f.Len-f.Off))
			}
			fine := f.Off == 0 || follows && f.Kind == last.Kind && f.Nth == last.Nth && f.Len == last.Len &&
				f.Off == last.Off+int64(last.N)
			if err := o.Next(&f); (err == nil) != fine {
				t.Fatalf("seed %d: %+v after %+v: %v", seed, f, last, err)
			}
			if last = f; !fine {
				last = Frame{}
				o = Order{}
			}
			if rng.IntN(10) == 0 {
				if err := o.Next(&Frame{Kind: Message}); err != nil {
					t.Fatal(err)
				}
				last = Frame{}
			}
		}
	}
}

func TestReads(t *testing.T) {
	r := Reads{}
	for range fabric.MaxReads {
		if err := r.Begin(op); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.Begin(op); !errors.Is(err, ErrMalformed) {
		t.Errorf("read %d: %v", fabric.MaxReads+1, err)
	}
	if err := r.Begin(fabric.OpKey{Seq: 1}); err != nil {
		t.Errorf("a read of another operation: %v", err)
	}
	r.End(op)
	if err := r.Begin(op); err != nil {
		t.Errorf("after an answer: %v", err)
	}
	for range fabric.MaxReads {
		r.End(op)
	}
	r.End(fabric.OpKey{Seq: 1})
	if len(r) != 0 {
		t.Errorf("%v is left", r)
	}
}

func TestNoAllocations(t *testing.T) {
	b := make([]byte, 0, StreamMaxHeader)
	slot := make([]byte, SlotHeader+3)
	var o Order
	n := testing.AllocsPerRun(100, func() {
		for i := range streamSamples {
			b = streamSamples[i].AppendStream(b[:0])
			f, err := ParseStream(b)
			if err != nil {
				t.Fatal(err)
			}
			f.Off = 0
			if err := o.Next(&f); err != nil {
				t.Fatal(err)
			}
		}
		slotSamples[1].PutSlot(slot)
		if _, _, err := ParseSlot(slot); err != nil {
			t.Fatal(err)
		}
	})
	if n != 0 {
		t.Errorf("%v allocations", n)
	}
}
