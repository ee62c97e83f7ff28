//go:build verbs

package verbs

import "testing"

// FuzzIntroduction gives bytes of the network to the decoder. An introduction that it accepts has one encoding.
func FuzzIntroduction(f *testing.F) {
	b := make([]byte, introductionSize)
	for _, i := range []introduction{{}, {token: 1, from: 2, qp: 3, known: true}, {asks: true}, {left: true}} {
		i.put(b)
		f.Add(append([]byte(nil), b...))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		i, ok := parseIntroduction(b)
		if !ok {
			return
		}
		again := make([]byte, introductionSize)
		if i.put(again); string(again) != string(b) {
			t.Errorf("%x becomes %x", b, again)
		}
	})
}
