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

// ProbeToken is the token of the datagrams that test a communicator's multicast groups. No communicator
// has this name. Any goroutine may call it.
func (d *Datapath) ProbeToken(comm uint32) uint64 {
	return newTokens(d.cfg.Secret).of("probe", uint64(comm))
}
