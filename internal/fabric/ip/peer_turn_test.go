package ip

import (
	"bytes"
	"errors"
	"testing"
)

// A connection that has much to say lets others have their turn, and loses nothing.
func TestReadInTurns(t *testing.T) {
	rec := newTCPRec()
	var b []byte
	for range 100 {
		b = append(frameAppend(b, &frameHeader{kind: frameMessage, n: 1000}), make([]byte, 1000)...)
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
