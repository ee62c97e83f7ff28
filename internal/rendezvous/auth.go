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
//	child -> parent   preamble
//	parent -> child   preamble, proof
//	child -> parent   proof
//
// A preamble holds the magic, flags and a nonce. The flags say whether the sender has a key and whether it
// seals the rest. If the ranks meet through a store, the parent's nonce begins with its incarnation.
//
// A proof is an HMAC over both preambles. Its label differs by direction, so an attacker cannot reflect a proof to
// its sender. Without a key, proofs are zero. If both sides want to seal, all bytes after the proofs are sealed
// (sealed.go). If only one side does, the parent sends the verdict in the clear, and nothing else.
const (
	nonceSize    = 32
	proofSize    = sha256.Size
	preambleSize = len(magic) + 1 + nonceSize

	magic = "ALLCAST"

	proofOfParent = "allcast rendezvous: rank 0\x00"
	proofOfChild  = "allcast rendezvous: rank k\x00"
)

var (
	errStranger = errors.New("not a rank of Allcast")
	errDead     = errors.New("the process of the store's entry is gone, and another one has its address")
	errTheirKey = fmt.Errorf("%w: on the other side", ErrKey)
)

// sameKey is the advice for all errors about keys.
const sameKey = "set ALLCAST_KEY or ALLCAST_KEY_FILE to the same on all ranks"

type preamble [preambleSize]byte

// incarnation is a random number of a process that listens; zero if ranks do not meet through a store.
type incarnation [16]byte

// Bits of the byte after the magic.
const (
	modeKeyed = 1 << iota
	modeSecure
)

func newPreamble(key []byte, secure bool, id incarnation) (p preamble) {
	copy(p[:], magic)
	if key != nil {
		p[len(magic)] |= modeKeyed
	}
	if secure {
		p[len(magic)] |= modeSecure
	}
	nonce := p[len(magic)+1:]
	_, _ = rand.Read(nonce) // a failure would end the process
	if id != (incarnation{}) {
		copy(nonce, id[:]) // the other half keeps the nonce fresh
	}
	return p
}

func (p *preamble) id() incarnation { return incarnation(p[len(magic)+1:][:len(incarnation{})]) }

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

func proof(key []byte, label string, child, parent *preamble) (sum [proofSize]byte) {
	if key == nil {
		return sum
	}
	m := hmac.New(sha256.New, key)
	m.Write([]byte(label))
	m.Write(child[:])
	m.Write(parent[:])
	m.Sum(sum[:0])
	return sum
}

// authParent is the side of the rank that listens. errStranger and errTheirKey describe the other side; all
// other errors mean that the connection broke.
func authParent(c io.ReadWriter, key []byte, secure bool, id incarnation) (link, error) {
	mine := newPreamble(key, secure, id)
	theirs, err := readPreamble(c)
	if err != nil {
		return link{}, err
	}
	same := theirs.keyed() == (key != nil)
	var sum, answer [proofSize]byte
	if same {
		sum = proof(key, proofOfParent, &theirs, &mine)
	}
	if _, err = c.Write(append(mine[:], sum[:]...)); err == nil && same {
		_, err = io.ReadFull(c, answer[:])
	}
	if err != nil {
		return link{}, err
	}
	if want := proof(key, proofOfChild, &theirs, &mine); !same || !hmac.Equal(answer[:], want[:]) {
		return link{}, errTheirKey
	}
	return newLink(key, &theirs, &mine, true), nil
}

// authChild is the side of the rank that dials. It returns errDead if the parent has another incarnation than id,
// unless id is zero.
func authChild(c io.ReadWriter, key []byte, secure bool, parent int, id incarnation) (link, error) {
	mine := newPreamble(key, secure, incarnation{})
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
	want := proof(key, proofOfParent, &mine, &theirs)
	switch {
	case id != (incarnation{}) && theirs.id() != id:
		return link{}, errDead
	case theirs.keyed() && key == nil:
		return link{}, fmt.Errorf("%w: rank %d has one, this rank has none; %s", ErrKey, parent, sameKey)
	case !theirs.keyed() && key != nil:
		return link{}, fmt.Errorf("%w: this rank has one, rank %d has none; %s", ErrKey, parent, sameKey)
	case !hmac.Equal(sum[:], want[:]):
		// A wrong proof tells the parent why this rank leaves; a closed connection would not.
		_, _ = c.Write(make([]byte, proofSize))
		return link{}, fmt.Errorf("%w: this rank and rank %d have different keys; %s", ErrKey, parent, sameKey)
	}
	sum = proof(key, proofOfChild, &mine, &theirs)
	_, err = c.Write(sum[:])
	return newLink(key, &mine, &theirs, false), err
}
