package aggregate

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"io"
	"net"
	"slices"

	"github.com/allcast/allcast/internal/seal"
)

// A control connection begins with messages of fixed size:
//
//	child  -> parent   preamble
//	parent -> child    preamble, proof
//	child  -> parent   proof
//
// A preamble holds the magic, the version and a nonce. A proof is an HMAC-SHA256 with the site key over both
// preambles. Its label differs by direction, so a proof cannot be reflected to its sender. A parent of another
// version answers with its preamble and a proof of zeros, and closes. All further bytes are sealed, with one key
// per direction from the site key and both preambles.
const (
	magic        = "ACAGGR"
	version      = 2 // 2: offers and wants (inc.Kind)
	nonceSize    = 32
	preambleSize = len(magic) + 2 + nonceSize
	proofSize    = sha256.Size

	// MinKey is the smallest size of a site key and of a session's secret, in bytes.
	MinKey = 16
)

var (
	errStranger = errors.New("not an aggregator of Allcast, nor a rank")
	errVersion  = errors.New("another version of the protocol")
	errKey      = errors.New("another site key: give the ranks (ALLCAST_SITE_KEY_FILE) and all aggregators " +
		"(--site-key-file) the same")
)

type preamble [preambleSize]byte

func newPreamble() (p preamble) {
	copy(p[:], magic)
	binary.LittleEndian.PutUint16(p[len(magic):], version)
	_, _ = rand.Read(p[len(magic)+2:]) // a failure would end the process
	return p
}

func readPreamble(c io.Reader) (p preamble, err error) {
	if _, err = io.ReadFull(c, p[:]); err == nil && string(p[:len(magic)]) != magic {
		err = errStranger
	}
	return p, err
}

// check returns errVersion for a preamble of another version.
func (p *preamble) check() error {
	if v := binary.LittleEndian.Uint16(p[len(magic):]); v != version {
		return fmt.Errorf("%w: %d, and this side speaks %d; install the same release of Allcast on both sides",
			errVersion, v, version)
	}
	return nil
}

func prove(key []byte, label string, child, parent *preamble) (sum [proofSize]byte) {
	m := hmac.New(sha256.New, key)
	m.Write([]byte("allcast aggregator: " + label + "\x00"))
	m.Write(child[:])
	m.Write(parent[:])
	m.Sum(sum[:0])
	return sum
}

// authChild authenticates a connection that this side dialled. The caller sets a deadline.
func authChild(c net.Conn, key []byte) (net.Conn, error) {
	mine := newPreamble()
	if _, err := c.Write(mine[:]); err != nil {
		return nil, err
	}
	theirs, err := readPreamble(c)
	if err == nil {
		err = theirs.check()
	}
	if err != nil {
		return nil, err
	}
	var sum [proofSize]byte
	if _, err := io.ReadFull(c, sum[:]); err != nil {
		return nil, err
	}
	if want := prove(key, "parent", &mine, &theirs); !hmac.Equal(sum[:], want[:]) {
		// A wrong proof tells the parent why this side leaves; a closed connection would not.
		_, _ = c.Write(make([]byte, proofSize))
		return nil, errKey
	}
	sum = prove(key, "child", &mine, &theirs)
	if _, err := c.Write(sum[:]); err != nil {
		return nil, err
	}
	up, down := directions(key, &mine, &theirs)
	return seal.NewConn(c, down, up), nil
}

// authParent authenticates a connection that this side accepted. The caller sets a deadline.
func authParent(c net.Conn, key []byte) (net.Conn, error) {
	theirs, err := readPreamble(c)
	if err != nil {
		return nil, err
	}
	mine := newPreamble()
	var sum, answer [proofSize]byte
	bad := theirs.check()
	if bad == nil {
		sum = prove(key, "parent", &theirs, &mine)
	}
	if _, err := c.Write(append(mine[:], sum[:]...)); err != nil {
		return nil, err
	}
	if bad != nil {
		return nil, bad
	}
	if _, err := io.ReadFull(c, answer[:]); err != nil {
		return nil, err
	}
	if want := prove(key, "child", &theirs, &mine); !hmac.Equal(answer[:], want[:]) {
		return nil, errKey
	}
	up, down := directions(key, &theirs, &mine)
	return seal.NewConn(c, up, down), nil
}

// directions returns the keys of a connection. The nonces make them unique to it.
func directions(key []byte, child, parent *preamble) (up, down *seal.Direction) {
	m := seal.NewMaster(key, slices.Concat(child[:], parent[:]))
	return m.Direction("aggregator, child to parent"), m.Direction("aggregator, parent to child")
}

// tokens makes the tokens of a session's operations. It is not safe for concurrent use.
type tokens struct {
	mac hash.Hash
	in  []byte
	sum []byte
}

func newTokens(secret []byte) *tokens {
	return &tokens{mac: hmac.New(sha256.New, secret), sum: make([]byte, 0, sha256.Size)}
}

// of returns the token of an operation: a part of HMAC-SHA256(secret, communicator and number).
func (t *tokens) of(comm, number uint32) uint64 {
	le := binary.LittleEndian
	t.in = append(t.in[:0], "allcast aggregation"...)
	t.in = le.AppendUint32(le.AppendUint32(t.in, comm), number)
	t.mac.Reset()
	t.mac.Write(t.in)
	t.sum = t.mac.Sum(t.sum[:0])
	return le.Uint64(t.sum)
}
