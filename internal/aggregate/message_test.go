package aggregate

import (
	"bytes"
	"net"
	"strings"
	"testing"
	"time"
)

// Control characters of a peer do not reach a terminal.
func TestControlCharacters(t *testing.T) {
	m, err := parseMessage([]byte(`{"kind":"status","status":{"why":"a\u001b[2Jb"},"why":"c\nd"}`))
	if err != nil || m.Status.Why != "a?[2Jb" || m.Why != "c?d" {
		t.Errorf("%+v, %v", m, err)
	}
	for _, name := range []string{"a\x1b[2Jb", "a\nb", "größer", "a\x80"} {
		a := &attach{Job: name, Session: 7, Secret: secret, Tree: "a:1=0-1", Size: 2, Chunk: 8, Window: 1}
		if _, err := a.check(); err == nil || strings.Contains(err.Error(), name) ||
			!strings.Contains(err.Error(), "printable") {
			t.Errorf("%q: %v", name, err)
		}
	}
}

// A reason of any characters fits the limits of its reader.
func TestLongestReason(t *testing.T) {
	for _, text := range []string{"<>&", "\"\\", "\x1b", "\x80", "\u2028", "ö", "x"} {
		why := clip(strings.Repeat(text, maxWhy))
		var wire writeBuffer
		if err := writeMessage(&wire, &message{Kind: msgDetach, Why: why}, time.Minute); err != nil {
			t.Fatal(err)
		}
		m, err := readMessage(&wire.Buffer, maxSmall)
		if err != nil || m.Why != why || len(why) < maxWhy-4 {
			t.Errorf("%q: %d bytes, %v", text, len(why), err)
		}
	}
}

// writeBuffer is a connection that keeps what is written.
type writeBuffer struct {
	bytes.Buffer
	net.Conn
}

func (b *writeBuffer) Write(p []byte) (int, error)      { return b.Buffer.Write(p) }
func (b *writeBuffer) Read(p []byte) (int, error)       { return b.Buffer.Read(p) }
func (b *writeBuffer) SetWriteDeadline(time.Time) error { return nil }
