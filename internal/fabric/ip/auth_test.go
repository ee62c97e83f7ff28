package ip

import (
	"bytes"
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
			_ = authReady(y, authOK)
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
	b := authSelf{rank: 0, size: 5, secret: []byte("key")}
	n, m := make([]byte, authNonce), bytes.Repeat([]byte{1}, authNonce)
	seen := map[string]bool{}
	for _, p := range [][]byte{
		a.prove("dialler", n, m, 1, 2), a.prove("acceptor", n, m, 1, 2), a.prove("dialler", m, n, 1, 2),
		a.prove("dialler", n, m, 2, 1), a.prove("dialler", n, n, 1, 2), b.prove("dialler", n, m, 1, 2),
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
		hello := make([]byte, authHelloSize)
		_, _ = io.ReadFull(y, hello)
		r := authSelf{rank: 1, size: 2}
		_ = r.reply(y, authOK, hello[20:], make([]byte, authProof))
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
			_, _ = io.ReadFull(y, make([]byte, authHelloSize))
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
	if !errors.Is(err, errAuthVersion) || out.Len() != authReplySize {
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
	hello := append(authPreamble(nil), 0, 0, 0, 0, 1, 0, 0, 0, 4, 0, 0, 0)
	hello = append(hello, make([]byte, authNonce+authProof)...)
	f.Add(hello)
	var reply bytes.Buffer
	_ = self.reply(&reply, authOK, make([]byte, authNonce), make([]byte, authProof))
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
