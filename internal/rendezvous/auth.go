package rendezvous

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
)

// The first bytes of a connection, of fixed size whatever they say:
//
//	rank k -> 0   preamble
//	0 -> rank k   preamble, proof
//	rank k -> 0   proof
//
// A preamble is the magic, whether its sender has a key and seals what follows, and a
// nonce. A proof is an HMAC over both preambles; what it begins with differs by
// direction, so that a proof cannot be sent back to its maker. Without a key proofs are
// zero. What follows the proofs is sealed if both sides want that (sealed.go); if only
// one does, the ranks are told so in the clear, and nothing else.
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
	_, _ = rand.Read(p[len(magic)+1:]) // never fails: it would end the process
	return p
}

// mode reports whether the sender has a key, and seals; an error means that it is a
// stranger.
func (p *preamble) mode() (keyed, secure bool, err error) {
	mode := p[len(magic)]
	if string(p[:len(magic)]) != magic || mode > modeKeyed|modeSecure {
		return false, false, errStranger
	}
	return mode&modeKeyed != 0, mode&modeSecure != 0, nil
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

// authRoot is rank 0's part. errStranger and errTheirKey say what is at the
// other end, other errors that the connection broke.
func authRoot(c io.ReadWriter, key []byte, secure bool) (link, error) {
	mine := newPreamble(key, secure)
	var theirs preamble
	if _, err := io.ReadFull(c, theirs[:]); err != nil {
		return link{}, err
	}
	keyed, _, err := theirs.mode()
	if err != nil {
		return link{}, err
	}
	same := keyed == (key != nil)
	var sum [proofSize]byte
	if same {
		sum = proof(key, proofOfRoot, &theirs, &mine)
	}
	if _, err := c.Write(append(mine[:], sum[:]...)); err != nil {
		return link{}, err
	}
	if !same {
		return link{}, errTheirKey
	}
	var answer [proofSize]byte
	if _, err := io.ReadFull(c, answer[:]); err != nil {
		return link{}, err
	}
	want := proof(key, proofOfRank, &theirs, &mine)
	if !hmac.Equal(answer[:], want[:]) {
		return link{}, errTheirKey
	}
	return newLink(key, &theirs, &mine, true), nil
}

// authRank is the part of all other ranks.
func authRank(c io.ReadWriter, key []byte, secure bool) (link, error) {
	mine := newPreamble(key, secure)
	if _, err := c.Write(mine[:]); err != nil {
		return link{}, err
	}
	var theirs preamble
	if _, err := io.ReadFull(c, theirs[:]); err != nil {
		return link{}, err
	}
	keyed, _, err := theirs.mode()
	if err != nil {
		return link{}, err
	}
	var sum [proofSize]byte
	if _, err := io.ReadFull(c, sum[:]); err != nil {
		return link{}, err
	}
	switch {
	case keyed && key == nil:
		return link{}, fmt.Errorf("%w: rank 0 has one, this rank has none; set ALLCAST_KEY or ALLCAST_KEY_FILE to the same on all ranks", ErrKey)
	case !keyed && key != nil:
		return link{}, fmt.Errorf("%w: this rank has one, rank 0 has none; set ALLCAST_KEY or ALLCAST_KEY_FILE to the same on all ranks", ErrKey)
	}
	want := proof(key, proofOfRoot, &mine, &theirs)
	if !hmac.Equal(sum[:], want[:]) {
		// A wrong answer instead of none tells rank 0 why this rank goes.
		_, _ = c.Write(make([]byte, proofSize))
		return link{}, fmt.Errorf("%w: this rank's is not rank 0's; set ALLCAST_KEY or ALLCAST_KEY_FILE to the same on all ranks", ErrKey)
	}
	sum = proof(key, proofOfRank, &mine, &theirs)
	_, err = c.Write(sum[:])
	return newLink(key, &mine, &theirs, false), err
}
