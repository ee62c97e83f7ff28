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
// A preamble is the magic, whether its sender has a key, and a nonce. A proof is
// an HMAC over both preambles; what it begins with differs by direction, so that
// a proof cannot be sent back to its maker. Without a key proofs are zero.
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

func newPreamble(key []byte) (p preamble) {
	copy(p[:], magic)
	if key != nil {
		p[len(magic)] = 1
	}
	_, _ = rand.Read(p[len(magic)+1:]) // never fails: it would end the process
	return p
}

// keyed reports whether the sender has a key; an error means that it is a stranger.
func (p *preamble) keyed() (bool, error) {
	mode := p[len(magic)]
	if string(p[:len(magic)]) != magic || mode > 1 {
		return false, errStranger
	}
	return mode == 1, nil
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
func authRoot(c io.ReadWriter, key []byte) error {
	mine := newPreamble(key)
	var theirs preamble
	if _, err := io.ReadFull(c, theirs[:]); err != nil {
		return err
	}
	keyed, err := theirs.keyed()
	if err != nil {
		return err
	}
	same := keyed == (key != nil)
	var sum [proofSize]byte
	if same {
		sum = proof(key, proofOfRoot, &theirs, &mine)
	}
	if _, err := c.Write(append(mine[:], sum[:]...)); err != nil {
		return err
	}
	if !same {
		return errTheirKey
	}
	var answer [proofSize]byte
	if _, err := io.ReadFull(c, answer[:]); err != nil {
		return err
	}
	want := proof(key, proofOfRank, &theirs, &mine)
	if !hmac.Equal(answer[:], want[:]) {
		return errTheirKey
	}
	return nil
}

// authRank is the part of all other ranks.
func authRank(c io.ReadWriter, key []byte) error {
	mine := newPreamble(key)
	if _, err := c.Write(mine[:]); err != nil {
		return err
	}
	var theirs preamble
	if _, err := io.ReadFull(c, theirs[:]); err != nil {
		return err
	}
	keyed, err := theirs.keyed()
	if err != nil {
		return err
	}
	var sum [proofSize]byte
	if _, err := io.ReadFull(c, sum[:]); err != nil {
		return err
	}
	switch {
	case keyed && key == nil:
		return fmt.Errorf("%w: rank 0 has one, this rank has none; set ALLCAST_KEY or ALLCAST_KEY_FILE to the same on all ranks", ErrKey)
	case !keyed && key != nil:
		return fmt.Errorf("%w: this rank has one, rank 0 has none; set ALLCAST_KEY or ALLCAST_KEY_FILE to the same on all ranks", ErrKey)
	}
	want := proof(key, proofOfRoot, &mine, &theirs)
	if !hmac.Equal(sum[:], want[:]) {
		// A wrong answer instead of none tells rank 0 why this rank goes.
		_, _ = c.Write(make([]byte, proofSize))
		return fmt.Errorf("%w: this rank's is not rank 0's; set ALLCAST_KEY or ALLCAST_KEY_FILE to the same on all ranks", ErrKey)
	}
	sum = proof(key, proofOfRank, &mine, &theirs)
	_, err = c.Write(sum[:])
	return err
}
