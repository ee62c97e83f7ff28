package rendezvous

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
)

// A connection begins with messages of fixed size:
//
//	rank k -> 0   preamble
//	0 -> rank k   preamble, proof
//	rank k -> 0   proof
//
// A preamble holds the magic, flags and a nonce. The flags say whether the sender has a key and whether it
// seals the rest. A proof is an HMAC over both preambles. Its label differs by direction, so an attacker cannot
// reflect a proof to its sender. Without a key, proofs are zero. If both sides want to seal, all bytes after the
// proofs are sealed (sealed.go). If only one side does, rank 0 sends the verdict in the clear, and nothing else.
const (
	nonceSize    = 32
	proofSize    = sha256.Size
	preambleSize = len(magic) + 1 + nonceSize

	magic = "ALLCAST"

	proofOfRoot = "allcast rendezvous: rank 0\x00"
	proofOfRank = "allcast rendezvous: rank k\x00"
)

var (
	errStranger = errors.New("not a rank of Allcast")
	errTheirKey = fmt.Errorf("%w: on the other side", ErrKey)
)

// sameKey is the advice for all errors about keys.
const sameKey = "set ALLCAST_KEY or ALLCAST_KEY_FILE to the same on all ranks"

type preamble [preambleSize]byte

// Bits of the byte after the magic.
const (
	modeKeyed = 1 << iota
	modeSecure
)

func newPreamble(key []byte, secure bool) (p preamble) {
	copy(p[:], magic)
	if key != nil {
		p[len(magic)] |= modeKeyed
	}
	if secure {
		p[len(magic)] |= modeSecure
	}
	_, _ = rand.Read(p[len(magic)+1:]) // a failure would end the process
	return p
}

func (p *preamble) keyed() bool { return p[len(magic)]&modeKeyed != 0 }
func (p *preamble) seals() bool { return p[len(magic)]&modeSecure != 0 }

// readPreamble returns errStranger if the sender is not a rank.
func readPreamble(c io.Reader) (p preamble, err error) {
	_, err = io.ReadFull(c, p[:])
	if err == nil && (string(p[:len(magic)]) != magic || p[len(magic)] > modeKeyed|modeSecure) {
		err = errStranger
	}
	return p, err
}

func proof(key []byte, label string, rank, root *preamble) (sum [proofSize]byte) {
	if key == nil {
		return sum
	}
	m := hmac.New(sha256.New, key)
	m.Write([]byte(label))
	m.Write(rank[:])
	m.Write(root[:])
	m.Sum(sum[:0])
	return sum
}

// authRoot is rank 0's side of the handshake. errStranger and errTheirKey describe the other side; all other
// errors mean that the connection broke.
func authRoot(c io.ReadWriter, key []byte, secure bool) (link, error) {
	mine := newPreamble(key, secure)
	theirs, err := readPreamble(c)
	if err != nil {
		return link{}, err
	}
	same := theirs.keyed() == (key != nil)
	var sum, answer [proofSize]byte
	if same {
		sum = proof(key, proofOfRoot, &theirs, &mine)
	}
	if _, err = c.Write(append(mine[:], sum[:]...)); err == nil && same {
		_, err = io.ReadFull(c, answer[:])
	}
	if err != nil {
		return link{}, err
	}
	if want := proof(key, proofOfRank, &theirs, &mine); !same || !hmac.Equal(answer[:], want[:]) {
		return link{}, errTheirKey
	}
	return newLink(key, &theirs, &mine, true), nil
}

// authRank is the side of all other ranks.
func authRank(c io.ReadWriter, key []byte, secure bool) (link, error) {
	mine := newPreamble(key, secure)
	if _, err := c.Write(mine[:]); err != nil {
		return link{}, err
	}
	var sum [proofSize]byte
	theirs, err := readPreamble(c)
	if err == nil {
		_, err = io.ReadFull(c, sum[:])
	}
	if err != nil {
		return link{}, err
	}
	want := proof(key, proofOfRoot, &mine, &theirs)
	switch {
	case theirs.keyed() && key == nil:
		return link{}, fmt.Errorf("%w: rank 0 has one, this rank has none; %s", ErrKey, sameKey)
	case !theirs.keyed() && key != nil:
		return link{}, fmt.Errorf("%w: this rank has one, rank 0 has none; %s", ErrKey, sameKey)
	case !hmac.Equal(sum[:], want[:]):
		// A wrong proof tells rank 0 why this rank leaves; a closed connection would not.
		_, _ = c.Write(make([]byte, proofSize))
		return link{}, fmt.Errorf("%w: this rank and rank 0 have different keys; %s", ErrKey, sameKey)
	}
	sum = proof(key, proofOfRank, &mine, &theirs)
	_, err = c.Write(sum[:])
	return newLink(key, &mine, &theirs, false), err
}
