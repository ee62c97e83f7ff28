package seal

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"testing"
	"testing/iotest"
)

var secret = []byte("a secret of some length, for tests")

func members(n int) []int {
	m := make([]int, n)
	for i := range m {
		m[i] = i
	}
	return m
}

func TestDatagramsOpen(t *testing.T) {
	d := NewMaster(secret, nil).Datagrams("world", members(4), 7)
	var s Scratch
	header := []byte("sixteen bytes ..")
	for _, n := range []int{0, 1, 100, 8940} {
		text := bytes.Repeat([]byte{byte(n)}, n)
		at := Nonce{Sender: 3, Stream: 1, Imm: 9}
		sealed := d.Seal(&s, nil, at, text, header)
		if len(sealed) != n+TagSize {
			t.Fatalf("%d bytes became %d", n, len(sealed))
		}
		if n > TagSize && bytes.Contains(sealed, text[:TagSize]) {
			t.Error("the text is readable")
		}
		got := make([]byte, n)
		if !d.Open(&s, got, at, sealed, header) || !bytes.Equal(got, text) {
			t.Errorf("%d bytes do not open to the same text", n)
		}
		for _, c := range []struct {
			what   string
			at     Nonce
			sealed []byte
			header []byte
		}{
			{"another sender", Nonce{2, 1, 9}, sealed, header},
			{"another stream", Nonce{3, 0, 9}, sealed, header},
			{"another PSN", Nonce{3, 1, 8}, sealed, header},
			{"another header", at, sealed, []byte("sixteen bytes .!")},
			{"a changed bit", at, flip(sealed, len(sealed)/2), header},
			{"a changed tag", at, flip(sealed, len(sealed)-1), header},
			{"a shorter one", at, sealed[:len(sealed)-1], header},
			{"a longer one", at, append(bytes.Clone(sealed), 0), header},
			{"nothing", at, nil, header},
		} {
			if d.Open(&s, got, c.at, c.sealed, c.header) {
				t.Errorf("%d bytes: %s was accepted", n, c.what)
			}
		}
	}
}

func flip(b []byte, i int) []byte {
	b = bytes.Clone(b)
	b[i] ^= 1
	return b
}

// Operations have different keys if their numbers, names or members differ, even if the concatenated
// inputs look alike.
func TestKeysDiffer(t *testing.T) {
	m := NewMaster(secret, nil)
	keys := map[string]*Datagrams{
		"world, 7":         m.Datagrams("world", members(4), 7),
		"world, 8":         m.Datagrams("world", members(4), 8),
		"exit":             m.Datagrams("exit", members(4), 7),
		"fewer":            m.Datagrams("world", members(3), 7),
		"others":           m.Datagrams("world", []int{0, 1, 2, 4}, 7),
		"in a name":        m.Datagrams("\x03\x00\x00\x00world", members(3), 7),
		"another order":    m.Datagrams("world", []int{1, 0, 2, 3}, 7),
		"another secret":   NewMaster([]byte("another"), nil).Datagrams("world", members(4), 7),
		"with a salt":      NewMaster(secret, []byte("salt")).Datagrams("world", members(4), 7),
		"of no members":    m.Datagrams("world", nil, 7),
		"with a long name": m.Datagrams("world4", members(4), 7),
	}
	seen := map[string]string{}
	for name, d := range keys {
		var s Scratch
		b := string(d.Seal(&s, nil, Nonce{}, make([]byte, 32), nil))
		if other, ok := seen[b]; ok {
			t.Errorf("%q and %q have the same key", name, other)
		}
		seen[b] = name
	}
}

func TestSealAllocatesNothing(t *testing.T) {
	d := NewMaster(secret, nil).Datagrams("world", members(4), 7)
	var s Scratch
	text, header := make([]byte, 8000), make([]byte, 16)
	sealed := make([]byte, 0, 8000+TagSize)
	if n := testing.AllocsPerRun(100, func() {
		b := d.Seal(&s, sealed, Nonce{}, text, header)
		if !d.Open(&s, text, Nonce{}, b, header) {
			t.Error("the sealed text does not open")
		}
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

// directions returns both ends of a direction of each kind.
func directions() map[string][2]*Direction {
	m := NewMaster(secret, []byte("nonces"))
	return map[string][2]*Direction{
		"sealed":  {m.Direction("a to b"), m.Direction("a to b")},
		"checked": {Checked(), Checked()},
	}
}

func TestStream(t *testing.T) {
	for name, d := range directions() {
		t.Run(name, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(1, 2))
			var wire, want []byte
			for _, n := range []int{1, 8, 0, 5000, MaxRecord, MaxRecord + 1, 300_000, 3} {
				text := make([]byte, n)
				for i := range text {
					text[i] = byte(rng.Uint32())
				}
				wire, want = d[0].Append(wire, text), append(want, text...)
			}
			got, err := io.ReadAll(NewReader(d[1], bytes.NewReader(wire)))
			if err != nil || !bytes.Equal(got, want) {
				t.Errorf("read %d of %d bytes, %v", len(got), len(want), err)
			}
		})
	}
}

// After a temporary error at any position, reading continues where it stopped.
func TestStreamAgain(t *testing.T) {
	again := errors.New("again")
	for name, d := range directions() {
		t.Run(name, func(t *testing.T) {
			want := bytes.Repeat([]byte("some text "), 2000)
			wire := d[0].Append(d[0].Append(nil, want[:7]), want[7:])
			src := &stuttering{r: iotest.OneByteReader(bytes.NewReader(wire)), err: again}
			r := NewReader(d[1], src)
			var got []byte
			b := make([]byte, 1000)
			for {
				n, err := r.Read(b)
				got = append(got, b[:n]...)
				if errors.Is(err, again) {
					continue
				}
				if err != nil {
					if !errors.Is(err, io.EOF) {
						t.Error(err)
					}
					break
				}
			}
			if !bytes.Equal(got, want) {
				t.Errorf("read %d of %d bytes", len(got), len(want))
			}
		})
	}
}

// stuttering fails every other read.
type stuttering struct {
	r   io.Reader
	err error
	now bool
}

func (s *stuttering) Read(b []byte) (int, error) {
	if s.now = !s.now; s.now {
		return 0, s.err
	}
	return s.r.Read(b)
}

// A Reader detects any change of the records, and returns no text after it.
func TestStreamChanged(t *testing.T) {
	for name := range directions() {
		t.Run(name, func(t *testing.T) {
			texts := []string{"first", "second", "third"}
			records := func() (r [][]byte) {
				d := directions()[name][0]
				for _, s := range texts {
					r = append(r, d.Append(nil, []byte(s)))
				}
				return r
			}
			r := records()
			wires := map[string][]byte{
				"left out": bytes.Join([][]byte{r[0], r[2]}, nil),
				"repeated": bytes.Join([][]byte{r[0], r[0], r[1]}, nil),
				"moved":    bytes.Join([][]byte{r[1], r[0], r[2]}, nil),
				"different key": bytes.Join([][]byte{
					r[0], NewMaster([]byte("x"), nil).Direction("a to b").Append(nil, []byte("second")),
				}, nil),
				"too long":      {0xff, 0xff, 0xff, 0xff, 1},
				"empty":         {0, 0, 0, 0, 1, 2, 3, 4},
				"cut short":     bytes.Join(r, nil)[:len(r[0])+6],
				"in the length": {1, 0},
			}
			whole := bytes.Join(r, nil)
			for i := range whole {
				wires[fmt.Sprintf("bit of byte %d", i)] = flip(whole, i)
			}
			for what, wire := range wires {
				rd := NewReader(directions()[name][1], bytes.NewReader(wire))
				got, err := io.ReadAll(rd)
				if !errors.Is(err, ErrRecord) && !errors.Is(err, io.ErrUnexpectedEOF) {
					t.Errorf("%s: %q, %v", what, got, err)
				}
				if !bytes.HasPrefix([]byte("firstsecondthird"), got) {
					t.Errorf("%s: %q was read", what, got)
				}
				if _, again := rd.Read(make([]byte, 9)); again == nil {
					t.Errorf("%s: the reader continues after the error", what)
				}
			}
		})
	}
}

// A Reader rejects records of the opposite direction.
func TestStreamReflected(t *testing.T) {
	m := NewMaster(secret, nil)
	wire := m.Direction("a to b").Append(nil, []byte("text"))
	if got, err := io.ReadAll(NewReader(m.Direction("b to a"), bytes.NewReader(wire))); !errors.Is(err, ErrRecord) {
		t.Errorf("%q, %v", got, err)
	}
}

// For any input, a Reader ends and returns no text that was not sealed.
func FuzzReader(f *testing.F) {
	for _, d := range directions() {
		f.Add(d[0].Append(nil, []byte("some text")), false)
		f.Add(d[0].Append(nil, []byte("some text")), true)
	}
	f.Fuzz(func(t *testing.T, wire []byte, sealed bool) {
		name := "checked"
		if sealed {
			name = "sealed"
		}
		r := NewReader(directions()[name][1], bytes.NewReader(wire))
		got, err := io.ReadAll(r)
		if len(got) > len(wire) {
			t.Errorf("%d bytes of text from %d bytes of input", len(got), len(wire))
		}
		if _, again := r.Read(make([]byte, 1)); again == nil || err != nil && again.Error() != err.Error() {
			t.Errorf("the error changes from %v to %v", err, again)
		}
	})
}

func FuzzOpen(f *testing.F) {
	d := NewMaster(secret, nil).Datagrams("world", members(2), 1)
	var s Scratch
	f.Add(d.Seal(&s, nil, Nonce{1, 0, 5}, []byte("text"), []byte("h")), []byte("h"), uint32(1), uint32(5))
	f.Fuzz(func(t *testing.T, sealed, header []byte, sender, imm uint32) {
		var s Scratch
		dst := make([]byte, max(0, len(sealed)-TagSize))
		at := Nonce{sender, 0, imm}
		if d.Open(&s, dst, at, sealed, header) && !bytes.Equal(d.Seal(&s, nil, at, dst, header), sealed) {
			t.Error("the opened text seals to different bytes")
		}
	})
}

// BenchmarkChunk measures the cost of one chunk for a jumbo and for a standard frame.
func BenchmarkChunk(b *testing.B) {
	d := NewMaster(secret, nil).Datagrams("world", members(8), 1)
	var s Scratch
	header := make([]byte, 16)
	for _, n := range []int{1440, 8940} {
		text, sealed := make([]byte, n), make([]byte, 0, n+TagSize)
		b.Run(fmt.Sprintf("Seal/%d", n), func(b *testing.B) {
			b.SetBytes(int64(n))
			b.ReportAllocs()
			for b.Loop() {
				d.Seal(&s, sealed, Nonce{}, text, header)
			}
		})
		b.Run(fmt.Sprintf("Open/%d", n), func(b *testing.B) {
			whole := d.Seal(&s, sealed, Nonce{}, text, header)
			b.SetBytes(int64(n))
			b.ReportAllocs()
			for b.Loop() {
				if !d.Open(&s, text, Nonce{}, whole, header) {
					b.Fatal("the sealed text does not open")
				}
			}
		})
		b.Run(fmt.Sprintf("Sum/%d", n), func(b *testing.B) {
			b.SetBytes(int64(n))
			for b.Loop() {
				Sum(Sum(0, header), text)
			}
		})
	}
	// Each operation derives a key.
	b.Run("Key", func(b *testing.B) {
		m := NewMaster(secret, nil)
		world := members(8)
		b.ReportAllocs()
		for b.Loop() {
			m.Datagrams("world", world, 1)
		}
	})
}
