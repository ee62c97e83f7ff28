package transfer

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"

	"github.com/allcast/allcast/internal/seal"
)

// A control connection begins with messages of fixed size:
//
//	receiver -> sender   preamble
//	sender -> receiver   preamble, proof
//	receiver -> sender   proof
//
// A preamble holds the magic, flags and a nonce. A proof is an HMAC over both preambles, with a label per direction.
// Without a key, proofs are zero. With a key, all later bytes are encrypted.
const (
	magic        = "ALLSEND1"
	nonceSize    = 32
	preambleSize = len(magic) + 1 + nonceSize
	proofSize    = sha256.Size

	senderProof   = "allcast transfer: sender\x00"
	receiverProof = "allcast transfer: receiver\x00"
)

// Flags of a preamble.
const (
	flagKeyed   = 1 << iota // has a key
	flagEncrypt             // encrypts the data
)

// ErrKey means that the sender and the receiver do not have the same key, or do not both encrypt.
var ErrKey = errors.New("the keys of sender and receiver do not match")

var errStranger = errors.New("the other side is not allcast send or allcast recv")

type preamble [preambleSize]byte

func newPreamble(key []byte, encrypt bool) (p preamble) {
	copy(p[:], magic)
	if key != nil {
		p[len(magic)] |= flagKeyed
	}
	if encrypt {
		p[len(magic)] |= flagEncrypt
	}
	_, _ = rand.Read(p[len(magic)+1:]) // a failure would end the process
	return p
}

func (p *preamble) flags() byte { return p[len(magic)] }

func readPreamble(r io.Reader) (p preamble, err error) {
	_, err = io.ReadFull(r, p[:])
	if err == nil && (string(p[:len(magic)]) != magic || p.flags() > flagKeyed|flagEncrypt) {
		err = errStranger
	}
	return p, err
}

func proof(key []byte, label string, receiver, sender *preamble) (sum [proofSize]byte) {
	if key != nil {
		m := hmac.New(sha256.New, key)
		m.Write([]byte(label))
		m.Write(receiver[:])
		m.Write(sender[:])
		m.Sum(sum[:0])
	}
	return sum
}

// authSender is the handshake on the side of the sender. The receiver explains a mismatch to its user.
func authSender(c net.Conn, key []byte, encrypt bool) (net.Conn, error) {
	mine := newPreamble(key, encrypt)
	theirs, err := readPreamble(c)
	if err != nil {
		return nil, err
	}
	same := theirs.flags() == mine.flags()
	var sum, answer [proofSize]byte
	if same {
		sum = proof(key, senderProof, &theirs, &mine)
	}
	if _, err = c.Write(append(mine[:], sum[:]...)); err == nil && same {
		_, err = io.ReadFull(c, answer[:])
	}
	if err != nil {
		return nil, err
	}
	if want := proof(key, receiverProof, &theirs, &mine); !same || !hmac.Equal(answer[:], want[:]) {
		return nil, ErrKey
	}
	return protect(c, key, &theirs, &mine, true), nil
}

// authReceiver is the handshake on the side of the receiver.
func authReceiver(c net.Conn, key []byte, encrypt bool) (net.Conn, error) {
	mine := newPreamble(key, encrypt)
	if _, err := c.Write(mine[:]); err != nil {
		return nil, err
	}
	var sum [proofSize]byte
	theirs, err := readPreamble(c)
	if err == nil {
		_, err = io.ReadFull(c, sum[:])
	}
	if err != nil {
		return nil, err
	}
	want := proof(key, senderProof, &mine, &theirs)
	switch differ := mine.flags() ^ theirs.flags(); {
	case differ&flagKeyed != 0 && key == nil:
		return nil, fmt.Errorf("%w: the sender has a key, this receiver has none", ErrKey)
	case differ&flagKeyed != 0:
		return nil, fmt.Errorf("%w: this receiver has a key, the sender has none", ErrKey)
	case differ&flagEncrypt != 0:
		return nil, fmt.Errorf("%w: one side encrypts the data, the other does not (NoEncrypt): use the same on both", ErrKey)
	case !hmac.Equal(sum[:], want[:]):
		return nil, fmt.Errorf("%w: the sender has another key", ErrKey)
	}
	sum = proof(key, receiverProof, &mine, &theirs)
	if _, err = c.Write(sum[:]); err != nil {
		return nil, err
	}
	return protect(c, key, &mine, &theirs, false), nil
}

// protect encrypts a connection if there is a key. The nonces in the preambles make its keys unique.
func protect(c net.Conn, key []byte, receiver, sender *preamble, weSend bool) net.Conn {
	if key == nil {
		return c
	}
	m := seal.NewMaster(key, slices.Concat(receiver[:], sender[:]))
	out, in := m.Direction("transfer, receiver to sender"), m.Direction("transfer, sender to receiver")
	if weSend {
		in, out = out, in
	}
	return seal.NewConn(c, in, out)
}
