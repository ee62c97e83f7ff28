package datapath

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"hash"
)

// tokens makes the 64-bit token that every datagram of an operation carries. Without the job's secret, a
// process cannot forge one. No two operations of a job have the same token, which tells stale and
// foreign datagrams apart from this operation's.
type tokens struct{ mac hash.Hash }

func newTokens(secret []byte) *tokens { return &tokens{hmac.New(sha256.New, secret)} }

func (t *tokens) of(comm string, seq uint64) uint64 {
	t.mac.Reset()
	t.mac.Write(binary.LittleEndian.AppendUint64([]byte("allcast datagram"), seq))
	t.mac.Write([]byte(comm))
	return binary.LittleEndian.Uint64(t.mac.Sum(nil))
}
