package aggregate

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/netip"
	"strings"
	"testing"
)

// pair returns both ends of a connection.
func pair(t *testing.T) (child, parent net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	if child, err = net.Dial("tcp", l.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if parent, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = child.Close(); _ = parent.Close() })
	return child, parent
}

type outcome struct {
	conn net.Conn
	err  error
}

func TestHandshake(t *testing.T) {
	child, parent := pair(t)
	result := make(chan outcome)
	go func() {
		c, err := authParent(parent, siteKey)
		result <- outcome{c, err}
	}()
	down, err := authChild(child, siteKey)
	up := <-result
	if err != nil || up.err != nil {
		t.Fatal(err, up.err)
	}
	for _, c := range [][2]net.Conn{{down, up.conn}, {up.conn, down}} {
		if err := writeMessage(c[0], &message{Kind: msgPing}, handshakeTime); err != nil {
			t.Fatal(err)
		}
		if m, err := readMessage(c[1], maxSmall); err != nil || m.Kind != msgPing {
			t.Fatal(m, err)
		}
	}
}

func TestHandshakeWrongKey(t *testing.T) {
	child, parent := pair(t)
	result := make(chan outcome)
	go func() {
		c, err := authParent(parent, siteKey)
		result <- outcome{c, err}
	}()
	_, err := authChild(child, secret)
	if up := <-result; !errors.Is(err, errKey) || !errors.Is(up.err, errKey) {
		t.Error(err, up.err)
	}
}

// A stranger without the key cannot pass by sending the parent's own proof back.
func TestHandshakeReflected(t *testing.T) {
	child, parent := pair(t)
	result := make(chan outcome)
	go func() {
		c, err := authParent(parent, siteKey)
		result <- outcome{c, err}
	}()
	p := newPreamble()
	answer := make([]byte, preambleSize+proofSize)
	if _, err := child.Write(p[:]); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(child, answer); err != nil {
		t.Fatal(err)
	}
	if _, err := child.Write(answer[preambleSize:]); err != nil {
		t.Fatal(err)
	}
	if up := <-result; !errors.Is(up.err, errKey) {
		t.Error(up.err)
	}
}

func TestHandshakeVersion(t *testing.T) {
	child, parent := pair(t)
	result := make(chan outcome)
	go func() {
		c, err := authParent(parent, siteKey)
		result <- outcome{c, err}
	}()
	p := newPreamble()
	p[len(magic)] = version + 1
	if _, err := child.Write(p[:]); err != nil {
		t.Fatal(err)
	}
	theirs, err := readPreamble(child)
	if err != nil || theirs.check() != nil {
		t.Error(err)
	}
	var proof [proofSize]byte
	if _, err := io.ReadFull(child, proof[:]); err != nil || proof != [proofSize]byte{} {
		t.Error("a proof for another version", err)
	}
	if up := <-result; !errors.Is(up.err, errVersion) {
		t.Error(up.err)
	}
	if err := p.check(); err == nil || !strings.Contains(err.Error(), "the same release") {
		t.Error(err)
	}
}

func TestTokens(t *testing.T) {
	a, b := newTokens(secret), newTokens(siteKey)
	seen := map[uint64]bool{}
	for comm := range uint32(4) {
		for number := range uint32(4) {
			for _, k := range []*tokens{a, b} {
				if v := k.of(comm, number); seen[v] || v != k.of(comm, number) {
					t.Errorf("token %x of %d, %d", v, comm, number)
				} else {
					seen[v] = true
				}
			}
		}
	}
	if n := testing.AllocsPerRun(100, func() { a.of(1, 2) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestMessageLimits(t *testing.T) {
	if _, err := readMessage(bytes.NewReader([]byte{0xff, 0xff, 0xff, 0xff}), maxMessage); !errors.Is(err, errMessage) {
		t.Error(err)
	}
	if _, err := readMessage(bytes.NewReader([]byte{9, 0, 0, 0, '{'}), maxMessage); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Error(err)
	}
	for _, text := range []string{
		"", "x", "[]", `{"kind":"attach"}`, `{"kind":"status"}`,
		`{"kind":"detach","why":"` + strings.Repeat("x", maxWhy+1) + `"}`,
	} {
		if m, err := parseMessage([]byte(text)); !errors.Is(err, errMessage) {
			t.Errorf("%.40q: %+v, %v", text, m, err)
		}
	}
}

// Any message is an error, or can be checked and encoded again without a panic.
func FuzzMessage(f *testing.F) {
	f.Add([]byte(`{"kind":"ping"}`))
	f.Add([]byte(`{"kind":"status","status":{"window":5,"why":"x","pending":true}}`))
	a := &attach{
		Job: "j", Session: 1, Secret: secret, Tree: "127.0.0.1:1=0-1", Size: 2, Chunk: 8, Window: 1,
		Ranks: []member{{Rank: 0}, {Rank: 1}},
	}
	text, _ := json.Marshal(&message{Kind: msgAttach, Attach: a})
	f.Add(text)
	f.Fuzz(func(t *testing.T, text []byte) {
		m, err := parseMessage(text)
		if err != nil {
			return
		}
		if m.Attach != nil && m.Attach.Size <= 1024 {
			if tree, err := m.Attach.check(); err == nil {
				_ = checkRanks(tree, m.Attach, home, &socket{local: netip.AddrPortFrom(home, 1)})
			}
		}
		if _, err := json.Marshal(m); err != nil {
			t.Error(err)
		}
	})
}

// Any greeting is refused without the key, and read no further than its fixed size.
func FuzzHandshake(f *testing.F) {
	p := newPreamble()
	f.Add(p[:])
	f.Add(append(p[:], make([]byte, proofSize)...))
	f.Fuzz(func(t *testing.T, in []byte) {
		c := &tape{Reader: bytes.NewReader(in)}
		if _, err := authParent(c, siteKey); err == nil {
			t.Error("a greeting without the key was accepted")
		}
		if read := len(in) - c.Len(); read > preambleSize+proofSize {
			t.Errorf("%d bytes were read", read)
		}
	})
}

// tape is a connection with a fixed input.
type tape struct {
	*bytes.Reader
	net.Conn
}

func (t *tape) Read(b []byte) (int, error)  { return t.Reader.Read(b) }
func (t *tape) Write(b []byte) (int, error) { return len(b), nil }
