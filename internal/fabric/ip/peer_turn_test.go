package ip

import (
	"bytes"
	"errors"
	"testing"

	"github.com/allcast/allcast/internal/fabric/session"
)

// A connection with much traffic yields to others, and loses nothing.
func TestReadInTurns(t *testing.T) {
	rec := newTCPRec()
	var b []byte
	for range 100 {
		b = append((&session.Frame{Kind: session.Message, N: 1000}).AppendStream(b), make([]byte, 1000)...)
	}
	in := &peerIn{p: newPeer(&TCP{h: rec}, 1), fr: newFrameReader(bytes.NewReader(b))}
	turns := 0
	for ; ; turns++ {
		if err := in.read(10_000); !errors.Is(err, errMore) {
			break
		}
	}
	if n := len(rec.msgs[1]); n != 100 || turns != 10 {
		t.Errorf("%d messages in %d turns", n, turns)
	}
}
