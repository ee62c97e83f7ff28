//go:build verbs

package verbs

import (
	"bytes"
	"testing"

	"github.com/allcast/allcast/internal/fabric"
)

// Whatever comes, what is taken is what was meant, and all of it.
func FuzzFrame(f *testing.F) {
	b := make([]byte, frameHeader+3)
	for _, h := range []frame{
		{kind: frameMessage, n: 3, grant: 7},
		{kind: frameData, n: 3, op: fabric.OpKey{Comm: 1, Seq: 2}, nth: 3, len: 10, off: 7},
		{kind: frameHere, no: true, rkey: 9, id: 1 << 60, len: 1 << 40},
		{kind: frameGoodbye},
	} {
		h.put(b)
		f.Add(bytes.Clone(b[:frameHeader+h.n]))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		h, payload, err := parseFrame(b)
		if err != nil {
			return
		}
		if h.kind == frameData && h.off+int64(len(payload)) > h.len {
			t.Errorf("%d bytes at %d of %d", len(payload), h.off, h.len)
		}
		again := make([]byte, len(b))
		h.put(again)
		copy(again[frameHeader:], payload)
		if !bytes.Equal(again, b) {
			t.Errorf("%x became %x", b, again)
		}
	})
}

func TestErrorNames(t *testing.T) {
	e := &Error{Op: "send", Device: "mlx5_0:1", QP: 0x11, Peer: 3, Status: StatusRetryExc, Vendor: 0x81}
	if want := "verbs: mlx5_0:1: QP 0x11 to rank 3: send: RETRY_EXC_ERR: the peer does not answer (vendor's 0x81)"; e.Error() != want {
		t.Errorf("%v, want %s", e, want)
	}
	if s := Status(99).String(); s != "status 99" {
		t.Error(s)
	}
}
