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
	authVersion = 1
	authNonce   = 32
	authProof   = sha256.Size
)

var authOurs = authPreamble{Magic: [7]byte([]byte("ALLCAST")), Version: authVersion}

// The messages, little endian. The preamble comes before both others.
type (
	authPreamble struct {
		Magic   [7]byte
		Version uint8
	}
	authHello struct {
		From, To, Size uint32
		Nonce          [authNonce]byte
	}
	authReply struct {
		Verdict    authVerdict
		Rank, Size uint32
		Nonce      [authNonce]byte
		Proof      [authProof]byte
	}
)

// authVerdict is the acceptor's verdict on a hello or a proof.
type authVerdict uint32

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
type authLink struct{ in, out *seal.Direction }

// link derives the dialler's link from both nonces. The acceptor swaps its directions.
func (a *authSelf) link(h *authHello, nonce []byte) authLink {
	switch a.protection {
	case protectSums:
		return authLink{in: seal.Checked(), out: seal.Checked()}
	case protectSeal:
		m := seal.NewMaster(a.secret, slices.Concat(h.Nonce[:], nonce))
		return authLink{
			out: m.Direction(fmt.Sprintf("tcp, dialler %d to acceptor %d", h.From, h.To)),
			in:  m.Direction(fmt.Sprintf("tcp, acceptor %d to dialler %d", h.To, h.From)),
		}
	}
	return authLink{}
}

func (l authLink) reader(c io.Reader) io.Reader {
	if l.in == nil {
		return c
	}
	return seal.NewReader(l.in, c)
}

// prove returns the proof of one role for a hello and the acceptor's nonce. A zero byte ends the role, and
// the other fields have fixed sizes, so different facts give different inputs.
func (a *authSelf) prove(role string, h *authHello, nonce []byte) []byte {
	le := binary.LittleEndian
	b := slices.Concat([]byte("allcast tcp "+role+string(a.protection)+"\x00"), h.Nonce[:], nonce)
	b = le.AppendUint32(b, h.From)
	b = le.AppendUint32(b, h.To)
	b = le.AppendUint32(b, h.Size)
	m := hmac.New(sha256.New, a.secret)
	m.Write(b)
	return m.Sum(nil)
}

// authSend sends values of fixed size in one write.
func authSend(c io.Writer, values ...any) error {
	var b []byte
	for _, v := range values {
		b, _ = binary.Append(b, binary.LittleEndian, v) // fails only for values of variable size
	}
	if _, err := c.Write(b); err != nil {
		return fmt.Errorf("handshake: %w", err)
	}
	return nil
}

// authRead fills a value of fixed size.
func authRead(c io.Reader, v any) error {
	if err := binary.Read(c, binary.LittleEndian, v); err != nil {
		return fmt.Errorf("handshake: %w", err)
	}
	return nil
}

// authReceive reads a message behind its preamble. It checks the preamble first: a program with another
// protocol may never send a whole message.
func authReceive(c io.Reader, message any) error {
	var p authPreamble
	if err := authRead(c, &p); err != nil {
		return err
	}
	switch {
	case p.Magic != authOurs.Magic:
		return errAuthMagic
	case p.Version != authVersion:
		return fmt.Errorf("%w: %d, we speak %d", errAuthVersion, p.Version, authVersion)
	}
	return authRead(c, message)
}

// dial authenticates a connection that this rank dialled to rank to.
func (a *authSelf) dial(c io.ReadWriter, to int) (none authLink, err error) {
	hello := authHello{From: uint32(a.rank), To: uint32(to), Size: uint32(a.size)}
	rand.Read(hello.Nonce[:])
	if err := authSend(c, authOurs, hello); err != nil {
		return none, err
	}
	var reply authReply
	if err := authReceive(c, &reply); err != nil {
		return none, err
	}
	switch reply.Verdict {
	case authOK:
	case authWrongSize:
		return none, fmt.Errorf("%w: %d, ours is %d", errAuthSize, reply.Size, a.size)
	case authWrongRank:
		return none, fmt.Errorf("%w: rank %d wanted rank %d, found rank %d", errAuthRank, a.rank, to, reply.Rank)
	default:
		return none, fmt.Errorf("%w: verdict %d", errAuth, reply.Verdict)
	}
	if !hmac.Equal(reply.Proof[:], a.prove("acceptor", &hello, reply.Nonce[:])) {
		// A proof of zeros tells the acceptor why this rank leaves, and nothing else.
		_ = authSend(c, [authProof]byte{})
		return none, errAuthKey
	}
	if err := authSend(c, a.prove("dialler", &hello, reply.Nonce[:])); err != nil {
		return none, err
	}
	var ready uint8
	if err := authRead(c, &ready); err != nil {
		return none, err
	}
	switch authVerdict(ready) {
	case authOK:
		return a.link(&hello, reply.Nonce[:]), nil
	case authTwice:
		return none, errAuthTwice
	case authLeft:
		return none, errAuthLeft
	case authWrongKey:
		return none, errAuthKey
	}
	return none, fmt.Errorf("%w: verdict %d", errAuth, ready)
}

// accept authenticates an incoming connection, and returns the rank of the dialler. The caller then
// answers with a verdict.
func (a *authSelf) accept(c io.ReadWriter) (from int, l authLink, err error) {
	var hello authHello
	err = authReceive(c, &hello)
	verdict := authOK
	switch {
	case errors.Is(err, errAuthVersion):
		verdict = authWrongVersion
	case err != nil:
		return 0, l, err
	case int(hello.Size) != a.size:
		verdict, err = authWrongSize, fmt.Errorf("%w: %d, ours is %d", errAuthSize, hello.Size, a.size)
	case int(hello.To) != a.rank || hello.From >= hello.Size || hello.From == hello.To:
		verdict, err = authWrongRank, fmt.Errorf("%w: rank %d wanted rank %d, found rank %d", errAuthRank, hello.From,
			hello.To, a.rank)
	}
	reply := authReply{Verdict: verdict, Rank: uint32(a.rank), Size: uint32(a.size)}
	if err != nil {
		_ = authSend(c, authOurs, reply)
		return 0, l, err
	}
	rand.Read(reply.Nonce[:])
	reply.Proof = [authProof]byte(a.prove("acceptor", &hello, reply.Nonce[:]))
	if err := authSend(c, authOurs, reply); err != nil {
		return 0, l, err
	}
	var proof [authProof]byte
	if err := authRead(c, &proof); err != nil {
		return 0, l, err
	}
	if !hmac.Equal(proof[:], a.prove("dialler", &hello, reply.Nonce[:])) {
		_ = authSend(c, uint8(authWrongKey))
		return 0, l, errAuthKey
	}
	theirs := a.link(&hello, reply.Nonce[:])
	return int(hello.From), authLink{in: theirs.out, out: theirs.in}, nil
}
