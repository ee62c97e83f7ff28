package ip

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"testing"
)

// authRun runs both sides of the handshake over a pipe.
func authRun(d, a authSelf, to int) (from int, dialErr, acceptErr error) {
	x, y := net.Pipe()
	end := make(chan struct{})
	go func() {
		defer close(end)
		if from, _, acceptErr = a.accept(y); acceptErr == nil {
			_ = authSend(y, uint8(authOK))
		}
		_ = y.Close()
	}()
	_, dialErr = d.dial(x, to)
	_ = x.Close()
	<-end
	return from, dialErr, acceptErr
}

func TestAuth(t *testing.T) {
	key, other := []byte("key"), []byte("other")
	for _, c := range []struct {
		name         string
		d, a         authSelf
		to           int
		dial, accept error
	}{
		{"good", authSelf{rank: 3, size: 8, secret: key}, authSelf{rank: 5, size: 8, secret: key}, 5, nil, nil},
		{
			"key",
			authSelf{rank: 3, size: 8, secret: key},
			authSelf{rank: 5, size: 8, secret: other},
			5, errAuthKey, errAuthKey,
		},
		{
			"size",
			authSelf{rank: 3, size: 8, secret: key},
			authSelf{rank: 5, size: 9, secret: key},
			5, errAuthSize, errAuthSize,
		},
		{
			"rank",
			authSelf{rank: 3, size: 8, secret: key},
			authSelf{rank: 5, size: 8, secret: key},
			4, errAuthRank, errAuthRank,
		},
		{
			"self",
			authSelf{rank: 5, size: 8, secret: key},
			authSelf{rank: 5, size: 8, secret: key},
			5, errAuthRank, errAuthRank,
		},
	} {
		from, de, ae := authRun(c.d, c.a, c.to)
		if !errors.Is(de, c.dial) || !errors.Is(ae, c.accept) || (c.accept == nil && from != c.d.rank) {
			t.Errorf("%s: from %d, %v, %v", c.name, from, de, ae)
		}
	}
}

// A proof is valid only for its own side, ranks and nonces.
func TestAuthProofs(t *testing.T) {
	a := authSelf{rank: 0, size: 4, secret: []byte("key")}
	n, m := [authNonce]byte{}, [authNonce]byte{1}
	seen := map[string]bool{}
	for _, p := range [][]byte{
		a.prove("dialler", &authHello{From: 1, To: 2, Size: 4, Nonce: n}, m[:]),
		a.prove("acceptor", &authHello{From: 1, To: 2, Size: 4, Nonce: n}, m[:]),
		a.prove("dialler", &authHello{From: 1, To: 2, Size: 4, Nonce: m}, n[:]),
		a.prove("dialler", &authHello{From: 2, To: 1, Size: 4, Nonce: n}, m[:]),
		a.prove("dialler", &authHello{From: 1, To: 2, Size: 4, Nonce: n}, n[:]),
		a.prove("dialler", &authHello{From: 1, To: 2, Size: 5, Nonce: n}, m[:]),
	} {
		if seen[string(p)] {
			t.Error("two proofs are the same")
		}
		seen[string(p)] = true
	}
}

// A dialler refuses an acceptor that knows the nonce but not the key.
func TestAuthReflection(t *testing.T) {
	self := authSelf{rank: 0, size: 2, secret: []byte("key")}
	x, y := net.Pipe()
	go func() {
		var hello authHello
		_ = authReceive(y, &hello)
		_ = authSend(y, authOurs, authReply{Verdict: authOK, Rank: 1, Size: 2, Nonce: hello.Nonce})
		_, _ = io.Copy(io.Discard, y)
	}()
	if _, err := self.dial(x, 1); !errors.Is(err, errAuthKey) {
		t.Error(err)
	}
	_, _ = x.Close(), y.Close()
}

func TestAuthVersion(t *testing.T) {
	for _, c := range []struct {
		say  string
		want error
	}{{"ALLCAST\x02", errAuthVersion}, {"HTTP/1.1 400 Bad Request", errAuthMagic}} {
		x, y := net.Pipe()
		go func() {
			_ = authReceive(y, &authHello{})
			_, _ = io.WriteString(y, c.say)
			_ = y.Close()
		}()
		self := authSelf{rank: 0, size: 2, secret: []byte("key")}
		if _, err := self.dial(x, 1); !errors.Is(err, c.want) {
			t.Errorf("%q: %v", c.say, err)
		}
		_ = x.Close()
	}
	var out bytes.Buffer
	self := authSelf{rank: 0, size: 2, secret: []byte("key")}
	_, _, err := self.accept(authPipe{bytes.NewReader([]byte("ALLCAST\x02...")), &out})
	if !errors.Is(err, errAuthVersion) || out.Len() != binary.Size(authOurs)+binary.Size(authReply{}) {
		t.Error(err, out.Len())
	}
}

type authPipe struct {
	io.Reader
	io.Writer
}

// FuzzAuth plays a stranger against both sides. Neither side admits it.
func FuzzAuth(f *testing.F) {
	self := authSelf{rank: 1, size: 4, secret: []byte("key")}
	var hello, reply bytes.Buffer
	_ = authSend(&hello, authOurs, authHello{To: 1, Size: 4})
	f.Add(append(hello.Bytes(), make([]byte, authProof)...))
	_ = authSend(&reply, authOurs, authReply{Verdict: authOK, Rank: 1, Size: 4})
	f.Add(reply.Bytes())
	f.Add([]byte("ALLCAST\x02"))
	f.Add([]byte("GET / HTTP/1.1\r\n\r\n"))
	f.Fuzz(func(t *testing.T, in []byte) {
		if _, _, err := self.accept(authPipe{bytes.NewReader(in), io.Discard}); err == nil {
			t.Error("accepted")
		}
		if _, err := self.dial(authPipe{bytes.NewReader(in), io.Discard}, 0); err == nil {
			t.Error("dialled")
		}
	})
}
