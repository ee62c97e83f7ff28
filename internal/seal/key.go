package seal

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/binary"
)

// TagSize is what sealing adds to a text.
const TagSize = 16

const (
	keySize   = 16 // AES-128
	nonceSize = 12
)

// A Master is a secret that keys are derived from.
type Master struct{ prk []byte }

// NewMaster makes one from a secret; salt may be nil.
func NewMaster(secret, salt []byte) *Master {
	prk, err := hkdf.Extract(sha256.New, secret, salt)
	if err != nil {
		panic("seal: " + err.Error()) // only if the hash is not approved
	}
	return &Master{prk: prk}
}

// gcm is AES-GCM with the key of a purpose.
func (m *Master) gcm(info string) cipher.AEAD {
	key, err := hkdf.Expand(sha256.New, m.prk, info, keySize)
	if err != nil {
		panic("seal: " + err.Error())
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		panic("seal: " + err.Error())
	}
	a, err := cipher.NewGCM(block)
	if err != nil {
		panic("seal: " + err.Error())
	}
	return a
}

// A Datagrams seals and opens the datagrams of one operation. Any number of goroutines
// may use it.
type Datagrams struct{ aead cipher.AEAD }

// Datagrams makes the key of an operation: the seq-th on a communicator of this name and
// these members. The name comes last and the counts before it, so different operations
// are different inputs.
func (m *Master) Datagrams(name string, members []int, seq uint64) *Datagrams {
	le := binary.LittleEndian
	info := le.AppendUint64([]byte("allcast datagrams\x00"), seq)
	info = le.AppendUint32(info, uint32(len(members)))
	for _, r := range members {
		info = le.AppendUint32(info, uint32(r))
	}
	return &Datagrams{aead: m.gcm(string(info) + name)}
}

// Nonce is what tells the datagrams of an operation apart; see the package comment.
type Nonce struct {
	Sender, Sub, Imm uint32 // world rank; subgroup; immediate
}

func (n Nonce) put(b *[nonceSize]byte) []byte {
	le := binary.LittleEndian
	le.PutUint32(b[:], n.Sender)
	le.PutUint32(b[4:], n.Sub)
	le.PutUint32(b[8:], n.Imm)
	return b[:]
}

// Scratch is memory that a call needs, so that it allocates nothing. Each goroutine has
// its own.
type Scratch struct {
	nonce [nonceSize]byte
}

// Seal appends the sealed text, TagSize longer, to dst, and binds the header to it.
func (d *Datagrams) Seal(s *Scratch, dst []byte, n Nonce, text, header []byte) []byte {
	return d.aead.Seal(dst, n.put(&s.nonce), text, header)
}

// Open writes the text of what was sealed to dst, whose length is the text's, and reports
// whether nobody has changed it. If it was changed, dst holds nothing of use.
func (d *Datagrams) Open(s *Scratch, dst []byte, n Nonce, sealed, header []byte) bool {
	if len(sealed) != len(dst)+TagSize {
		return false
	}
	_, err := d.aead.Open(dst[:0:len(dst)], n.put(&s.nonce), sealed, header)
	return err == nil
}
