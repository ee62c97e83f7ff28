package ip

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/allcast/allcast/internal/seal"
)

// Each connection begins with a handshake in which both sides prove that they know the job's key. All
// messages have a fixed size:
//
//	dialler   -> hello:  magic, version; its rank, the wanted rank, the world's size; its nonce
//	acceptor  -> reply:  magic, version; verdict on the hello; its rank, the world's size; its nonce, its proof
//	dialler   -> proof
//	acceptor  -> one byte: the connection is ready, or why it is not
//
// A proof is HMAC-SHA256 with the key over the role, both nonces, both ranks and the size. It cannot be
// reflected (used in the other role), replayed, or used for other ranks. It also covers the protection
// of the connection: sealed, with one key per direction from the job's key and both nonces; summed; or
// none. Ranks that disagree do not connect.
const (
	authMagic   = "ALLCAST"
	authVersion = 1

	authNonce     = 32
	authProof     = sha256.Size
	authHelloSize = 8 + 3*4 + authNonce
	authReplySize = 8 + 3*4 + authNonce + authProof
)

// authVerdict is the acceptor's verdict on a hello or a proof.
type authVerdict uint8

const (
	authOK authVerdict = iota + 1
	authWrongVersion
	authWrongRank // the acceptor has another rank, or the dialler's rank is invalid
	authWrongSize
	authWrongKey
	authTwice // the dialler has a connection already
	authLeft  // the acceptor has dropped the dialler, or is closing
)

// Errors that a retry cannot fix.
var (
	errAuth        = errors.New("connection refused by authentication")
	errAuthKey     = fmt.Errorf("%w: the other side has another job key", errAuth)
	errAuthMagic   = fmt.Errorf("%w: the other side does not speak Allcast", errAuth)
	errAuthVersion = fmt.Errorf("%w: the other side speaks another version of the protocol", errAuth)
	errAuthRank    = fmt.Errorf("%w: wrong rank", errAuth)
	errAuthSize    = fmt.Errorf("%w: the other side has another world size", errAuth)
	errAuthTwice   = fmt.Errorf("%w: this rank is connected already", errAuth)
	errAuthLeft    = fmt.Errorf("%w: the peer has left, or has given us up", errAuth)
)

// authSelf is this rank's side of the handshake.
type authSelf struct {
	rank, size int
	secret     []byte
	protection protection
}

// protection is the protection of a connection's bytes.
type protection string

const (
	protectNothing protection = ""
	protectSums    protection = ", summed"
	protectSeal    protection = ", sealed"
)

// authLink protects the bytes of a connection; nil: they are not protected.
type authLink struct {
	in, out *seal.Direction
}

// link derives the dialler's link from both nonces. The acceptor swaps its directions.
func (a *authSelf) link(dialNonce, acceptNonce []byte, from, to int) authLink {
	switch a.protection {
	case protectSums:
		return authLink{in: seal.Checked(), out: seal.Checked()}
	case protectSeal:
		m := seal.NewMaster(a.secret, slices.Concat(dialNonce, acceptNonce))
		return authLink{
			out: m.Direction(fmt.Sprintf("tcp, dialler %d to acceptor %d", from, to)),
			in:  m.Direction(fmt.Sprintf("tcp, acceptor %d to dialler %d", to, from)),
		}
	}
	return authLink{}
}

func (l authLink) turned() authLink { return authLink{in: l.out, out: l.in} }

// reader removes the protection from the peer's bytes.
func (l authLink) reader(c io.Reader) io.Reader {
	if l.in == nil {
		return c
	}
	return seal.NewReader(l.in, c)
}

// wrap protects bytes.
func (l authLink) wrap(b []byte) []byte {
	if l.out == nil {
		return b
	}
	return l.out.Append(nil, b)
}

// prove returns the proof of one role. A zero byte ends the role, and the other fields have fixed sizes,
// so different facts give different inputs.
func (a *authSelf) prove(role string, dialNonce, acceptNonce []byte, from, to int) []byte {
	m := hmac.New(sha256.New, a.secret)
	m.Write([]byte("allcast tcp " + role + string(a.protection) + "\x00"))
	m.Write(dialNonce)
	m.Write(acceptNonce)
	var b [12]byte
	binary.LittleEndian.PutUint32(b[:], uint32(from))
	binary.LittleEndian.PutUint32(b[4:], uint32(to))
	binary.LittleEndian.PutUint32(b[8:], uint32(a.size))
	m.Write(b[:])
	return m.Sum(nil)
}

// authPreamble appends magic and version.
func authPreamble(b []byte) []byte {
	return append(append(b, authMagic...), authVersion)
}

func authCheckPreamble(b []byte) error {
	if string(b[:len(authMagic)]) != authMagic {
		return errAuthMagic
	}
	if v := b[len(authMagic)]; v != authVersion {
		return fmt.Errorf("%w: %d, we speak %d", errAuthVersion, v, authVersion)
	}
	return nil
}

// dial authenticates a connection that this rank dialled to rank to.
func (a *authSelf) dial(c io.ReadWriter, to int) (authLink, error) {
	var none authLink
	le := binary.LittleEndian
	nonce := make([]byte, authNonce)
	rand.Read(nonce)
	hello := authPreamble(make([]byte, 0, authHelloSize))
	hello = le.AppendUint32(hello, uint32(a.rank))
	hello = le.AppendUint32(hello, uint32(to))
	hello = le.AppendUint32(hello, uint32(a.size))
	hello = append(hello, nonce...)
	if _, err := c.Write(hello); err != nil {
		return none, fmt.Errorf("handshake: %w", err)
	}
	var reply [authReplySize]byte
	// The preamble first: a program with another protocol may never send a whole reply.
	if _, err := io.ReadFull(c, reply[:8]); err != nil {
		return none, fmt.Errorf("handshake: %w", err)
	}
	if err := authCheckPreamble(reply[:]); err != nil {
		return none, err
	}
	if _, err := io.ReadFull(c, reply[8:]); err != nil {
		return none, fmt.Errorf("handshake: %w", err)
	}
	rank, size := le.Uint32(reply[12:]), le.Uint32(reply[16:])
	switch authVerdict(le.Uint32(reply[8:])) {
	case authOK:
	case authWrongSize:
		return none, fmt.Errorf("%w: %d, ours is %d", errAuthSize, size, a.size)
	case authWrongRank:
		return none, fmt.Errorf("%w: rank %d wanted rank %d, found rank %d", errAuthRank, a.rank, to, rank)
	default:
		return none, fmt.Errorf("%w: verdict %d", errAuth, le.Uint32(reply[8:]))
	}
	theirs, proof := reply[20:20+authNonce], reply[20+authNonce:]
	if !hmac.Equal(proof, a.prove("acceptor", nonce, theirs, a.rank, to)) {
		// A proof of zeros tells the acceptor why this rank leaves, and nothing else.
		_, _ = c.Write(make([]byte, authProof))
		return none, errAuthKey
	}
	if _, err := c.Write(a.prove("dialler", nonce, theirs, a.rank, to)); err != nil {
		return none, fmt.Errorf("handshake: %w", err)
	}
	var ready [1]byte
	if _, err := io.ReadFull(c, ready[:]); err != nil {
		return none, fmt.Errorf("handshake: %w", err)
	}
	switch authVerdict(ready[0]) {
	case authOK:
		return a.link(nonce, theirs, a.rank, to), nil
	case authTwice:
		return none, errAuthTwice
	case authLeft:
		return none, errAuthLeft
	case authWrongKey:
		return none, errAuthKey
	}
	return none, fmt.Errorf("%w: verdict %d", errAuth, ready[0])
}

// accept authenticates an incoming connection, and returns the rank of the dialler. The caller then
// answers with authReady.
func (a *authSelf) accept(c io.ReadWriter) (from int, l authLink, err error) {
	le := binary.LittleEndian
	var hello [authHelloSize]byte
	if _, err := io.ReadFull(c, hello[:8]); err != nil {
		return 0, l, fmt.Errorf("handshake: %w", err)
	}
	preamble := authCheckPreamble(hello[:])
	if errors.Is(preamble, errAuthMagic) {
		return 0, l, preamble
	}
	if preamble != nil {
		_ = a.reply(c, authWrongVersion, nil, nil)
		return 0, l, preamble
	}
	if _, err := io.ReadFull(c, hello[8:]); err != nil {
		return 0, l, fmt.Errorf("handshake: %w", err)
	}
	rank, to, size := le.Uint32(hello[8:]), le.Uint32(hello[12:]), le.Uint32(hello[16:])
	if int64(size) != int64(a.size) {
		_ = a.reply(c, authWrongSize, nil, nil)
		return 0, l, fmt.Errorf("%w: %d, ours is %d", errAuthSize, size, a.size)
	}
	if int64(to) != int64(a.rank) || rank >= size || rank == to {
		_ = a.reply(c, authWrongRank, nil, nil)
		return 0, l, fmt.Errorf("%w: rank %d wanted rank %d, found rank %d", errAuthRank, rank, to, a.rank)
	}
	from = int(rank)
	theirs, nonce := hello[20:], make([]byte, authNonce)
	rand.Read(nonce)
	if err := a.reply(c, authOK, nonce, a.prove("acceptor", theirs, nonce, from, a.rank)); err != nil {
		return 0, l, fmt.Errorf("handshake: %w", err)
	}
	var proof [authProof]byte
	if _, err := io.ReadFull(c, proof[:]); err != nil {
		return 0, l, fmt.Errorf("handshake: %w", err)
	}
	if !hmac.Equal(proof[:], a.prove("dialler", theirs, nonce, from, a.rank)) {
		_ = authReady(c, authWrongKey)
		return 0, l, errAuthKey
	}
	return from, a.link(theirs, nonce, from, a.rank).turned(), nil
}

func (a *authSelf) reply(c io.Writer, v authVerdict, nonce, proof []byte) error {
	le := binary.LittleEndian
	b := authPreamble(make([]byte, 0, authReplySize))
	b = le.AppendUint32(b, uint32(v))
	b = le.AppendUint32(b, uint32(a.rank))
	b = le.AppendUint32(b, uint32(a.size))
	b = append(append(b, nonce...), proof...)
	_, err := c.Write(b[:authReplySize])
	return err
}

// authReady ends the handshake.
func authReady(c io.Writer, v authVerdict) error {
	_, err := c.Write([]byte{byte(v)})
	return err
}
