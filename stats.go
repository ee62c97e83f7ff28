package allcast

// Stats are counters of this process since Join, over all its communicators.
type Stats struct {
	SentBytes       uint64            // bytes handed to the network, including headers of Allcast
	McastBytes      uint64            // part of SentBytes that was multicast
	QueueFull       uint64            // sends by multicast that this machine's own queue dropped, and that were repeated
	ReceivedChunks  uint64            // chunks received by multicast
	CopiedChunks    uint64            // part of ReceivedChunks that had to be copied into place
	RepairedBytes   uint64            // bytes fetched because multicast did not deliver them
	RepairedChunks  uint64            // chunks fetched because multicast did not deliver them
	DirectReads     uint64            // RDMA READs for repairs, on the fabric verbs
	LateChunks      uint64            // chunks that arrived by multicast after a fetch had started
	DuplicateChunks uint64            // chunks received more than once
	ForeignChunks   uint64            // ignored: foreign and old datagrams, and pieces without an operation
	CorruptChunks   uint64            // ignored: changed or forged datagrams, with Options.Integrity or Secure
	DroppedChunks   uint64            // chunks dropped by a full receive queue or ALLCAST_FAULT
	IncBytes        uint64            // part of SentBytes that was sent to aggregators
	IncUnsent       uint64            // contributions that did not leave: no aggregator, or no room in the socket
	IncDropped      uint64            // sums dropped by a full receive queue
	IncSums         uint64            // chunks that aggregators have summed for this rank
	IncFetchedBytes uint64            // inputs fetched from other ranks because aggregators did not add them
	IncFallbacks    uint64            // operations by "inc" with an Info.Fallback
	RejectedConns   uint64            // connections that did not prove to come from a rank
	JoinSent        uint64            // bytes sent to meet the other ranks in Join, not part of SentBytes
	JoinReceived    uint64            // bytes received to meet the other ranks in Join
	Peers           map[int]PeerStats // traffic by world rank, see Comm.WorldRank
}

// PeerStats counts the reliable traffic with one rank.
type PeerStats struct {
	SentBytes, ReceivedBytes uint64
}

// Stats returns the counters.
func (c *Comm) Stats() Stats {
	e := c.job.Stats()
	s := Stats{
		SentBytes: e.SentBytes(), McastBytes: e.McastBytes, QueueFull: e.QueueFull,
		ReceivedChunks: e.Placed, CopiedChunks: e.Copied,
		RepairedBytes: e.RepairedBytes, RepairedChunks: e.Repaired, DirectReads: e.DirectReads, LateChunks: e.Late,
		DuplicateChunks: e.Duplicates, ForeignChunks: e.Foreign + e.Stale, DroppedChunks: e.Dropped,
		IncBytes: e.IncBytes, IncUnsent: e.Unsent, IncDropped: e.SumsDropped, IncSums: e.Sums,
		IncFetchedBytes: e.FetchedInBytes, IncFallbacks: e.Fallbacks,
		CorruptChunks: e.Corrupt, RejectedConns: e.RejectedConns, JoinSent: c.job.Meeting.Sent,
		JoinReceived: c.job.Meeting.Received, Peers: map[int]PeerStats{},
	}
	for r, p := range e.Peers {
		s.Peers[r] = PeerStats{SentBytes: p.Sent, ReceivedBytes: p.Received}
	}
	return s
}
