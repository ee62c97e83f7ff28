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

func (t *tokens) of(comm string, seq uint64) uint64 { return t.sum("allcast datagram", comm, seq) }

// eager is the token of an eager operation. It differs from the token of any other operation, so that ranks
// of which only some are eager never take each other's datagrams.
func (t *tokens) eager(comm string, seq uint64) uint64 { return t.sum("allcast eager", comm, seq) }

func (t *tokens) sum(label, comm string, seq uint64) uint64 {
	t.mac.Reset()
	t.mac.Write(binary.LittleEndian.AppendUint64([]byte(label), seq))
	t.mac.Write([]byte(comm))
	return binary.LittleEndian.Uint64(t.mac.Sum(nil))
}
