package seal

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/binary"
)

// TagSize is the number of bytes that sealing adds to a text.
const TagSize = 16

const (
	keySize   = 16 // AES-128
	nonceSize = 12
)

// A Master is a secret that keys are derived from.
type Master struct{ prk []byte }

// NewMaster derives a Master from a secret. salt may be nil.
func NewMaster(secret, salt []byte) *Master {
	return &Master{prk: must(hkdf.Extract(sha256.New, secret, salt))}
}

// gcm returns AES-GCM with the key for a purpose.
func (m *Master) gcm(info string) cipher.AEAD {
	key := must(hkdf.Expand(sha256.New, m.prk, info, keySize))
	return must(cipher.NewGCM(must(aes.NewCipher(key))))
}

// must returns v. Sizes of keys are constant, so errors happen only if an algorithm is not approved.
func must[T any](v T, err error) T {
	if err != nil {
		panic("seal: " + err.Error())
	}
	return v
}

// A Datagrams seals and opens the datagrams of one operation. It is safe for concurrent use.
type Datagrams struct{ aead cipher.AEAD }

// Datagrams returns the key of the seq-th operation on a communicator with this name and these members.
// The name comes last and the member count precedes the members, so different operations have
// different inputs.
func (m *Master) Datagrams(name string, members []int, seq uint64) *Datagrams {
	le := binary.LittleEndian
	info := le.AppendUint64([]byte("allcast datagrams\x00"), seq)
	info = le.AppendUint32(info, uint32(len(members)))
	for _, r := range members {
		info = le.AppendUint32(info, uint32(r))
	}
	return &Datagrams{aead: m.gcm(string(info) + name)}
}

// A Nonce distinguishes the datagrams of an operation; see the package comment.
type Nonce struct {
	Sender, Stream, Imm uint32 // world rank; stream; immediate
}

func (n Nonce) put(b *[nonceSize]byte) []byte {
	le := binary.LittleEndian
	le.PutUint32(b[:], n.Sender)
	le.PutUint32(b[4:], n.Stream)
	le.PutUint32(b[8:], n.Imm)
	return b[:]
}

// Scratch is working memory that avoids allocations. Each goroutine needs its own.
type Scratch struct{ nonce [nonceSize]byte }

// Seal appends the sealed text, which is TagSize longer, to dst. It also authenticates the header.
func (d *Datagrams) Seal(s *Scratch, dst []byte, n Nonce, text, header []byte) []byte {
	return d.aead.Seal(dst, n.put(&s.nonce), text, header)
}

// Open decrypts a sealed text into dst, which has the length of the text. It returns false if the text
// or the header was changed; dst then holds no useful data.
func (d *Datagrams) Open(s *Scratch, dst []byte, n Nonce, sealed, header []byte) bool {
	if len(sealed) != len(dst)+TagSize {
		return false
	}
	_, err := d.aead.Open(dst[:0:len(dst)], n.put(&s.nonce), sealed, header)
	return err == nil
}
