package engine

import (
	"github.com/allcast/allcast/internal/fabric"
	"github.com/allcast/allcast/internal/node"
)

// Stats counts what an Engine did since it was made.
type Stats struct {
	node.Stats
	McastBytes    uint64 // multicast, headers included
	McastChunks   uint64
	Placed        uint64 // chunks received by multicast
	Copied        uint64 // of these, not received in place
	Corrupt       uint64 // datagrams that were not what was sent: changed on the way, or forged
	Dropped       uint64 // datagrams that a full receive queue, or an injected fault, dropped here
	RepairedBytes uint64 // fetched
	DirectReads   uint64 // of these fetches, requests to read a peer's memory (RDMA READ)
	Refused       uint64 // multicasts that the network refused to send
	RejectedConns uint64 // connections that did not prove to be of a rank
	Peers         map[int]fabric.PeerStats
}

// SentBytes is everything that was handed to the network, our headers included.
func (s *Stats) SentBytes() uint64 {
	n := s.McastBytes
	for _, p := range s.Peers {
		n += p.Sent
	}
	return n
}

// Stats returns the counters.
func (e *Engine) Stats() (s Stats) {
	if !e.do(func() { s.Stats = e.node.Stats() }) {
		s.Stats = e.node.Stats() // nobody else uses it any more
	}
	e.count(&s)
	return s
}

// count adds what is counted outside of the node.
func (e *Engine) count(s *Stats) {
	s.RepairedBytes, s.Refused = e.repaired.Load(), e.failed.Load()
	if e.send != nil {
		s.McastBytes, s.McastChunks = e.send.bytes.Load(), e.send.sent.Load()
	}
	for _, r := range e.recvs {
		s.Placed += r.placed.Load()
		s.Copied += r.copied.Load()
		s.Corrupt += r.corrupt.Load()
		rx := r.rx.Stats()
		s.Dropped += rx.Dropped
		s.Foreign += rx.Malformed
	}
	if e.caps.Placer != nil {
		s.Dropped += e.caps.Placer.Lost()
	}
	rel := e.rel.Stats()
	s.Peers, s.DirectReads, s.RejectedConns = rel.Peers, rel.DirectReads, rel.RejectedConns
}
