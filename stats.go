package allcast

// Stats counts what this process did since it joined, on all its communicators. Ranks in it are
// those of the communicator that Join returned; see Comm.WorldRank.
type Stats struct {
	SentBytes       uint64 // handed to the network, our headers included
	McastBytes      uint64 // of these, by multicast
	ReceivedChunks  uint64 // by multicast
	CopiedChunks    uint64 // of these, not received where they belong
	RepairedBytes   uint64 // fetched because multicast did not deliver them
	RepairedChunks  uint64
	DirectReads     uint64 // on the fabric verbs: RDMA READs that this took
	LateChunks      uint64 // came by multicast after they had been asked for
	DuplicateChunks uint64
	ForeignChunks   uint64            // strangers' and old datagrams, and pieces that no operation expected: ignored
	CorruptChunks   uint64            // changed on the way, or forged: found by Options.Integrity or Secure, ignored
	DroppedChunks   uint64            // by our full receive queue, or by ALLCAST_FAULT
	RejectedConns   uint64            // strangers' connections, and others that did not prove to be of a rank
	Peers           map[int]PeerStats // by world rank
}

// PeerStats counts the reliable traffic with one rank of the world.
type PeerStats struct {
	SentBytes, ReceivedBytes uint64
}

// Stats returns the counters.
func (c *Comm) Stats() Stats {
	e := c.job.Stats()
	s := Stats{
		SentBytes: e.SentBytes(), McastBytes: e.McastBytes, ReceivedChunks: e.Placed, CopiedChunks: e.Copied,
		RepairedBytes: e.RepairedBytes, RepairedChunks: e.Repaired, DirectReads: e.DirectReads, LateChunks: e.Late,
		DuplicateChunks: e.Duplicates, ForeignChunks: e.Foreign + e.Stale, DroppedChunks: e.Dropped, CorruptChunks: e.Corrupt, RejectedConns: e.RejectedConns,
		Peers: map[int]PeerStats{},
	}
	for r, p := range e.Peers {
		s.Peers[r] = PeerStats{SentBytes: p.Sent, ReceivedBytes: p.Received}
	}
	return s
}
