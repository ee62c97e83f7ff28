package observer

import (
	"time"

	"github.com/allcast/allcast/internal/engine/datapath"
	"github.com/allcast/allcast/internal/node"
	"github.com/allcast/allcast/internal/observe"
)

// Stats count what an engine did since it was made.
type Stats struct {
	node.Stats
	datapath.Counters
	Fallbacks uint64 // reductions that gave aggregators up, or fetched an eighth of their sums or more
}

// SentBytes counts everything that was handed to the network, headers included.
func (s *Stats) SentBytes() uint64 {
	n := s.McastBytes + s.IncBytes
	for _, p := range s.Peers {
		n += p.Sent
	}
	return n
}

// Stats returns the counters.
func (o *Observer) Stats() Stats {
	s, ok := ask(o, nil, o.node.Stats)
	if !ok {
		s = o.node.Stats() // nobody else uses the node any more
	}
	return o.stats(s)
}

// stats adds the counters of the datapath.
func (o *Observer) stats(n node.Stats) Stats {
	s := Stats{n, o.view.Counters(), o.fallbacks.Load()}
	s.Foreign += s.Malformed + s.SumsStale + s.SumsForeign
	s.Duplicates += s.SumsTwice
	s.Late += s.SumsLate
	return s
}

// Metrics implements observe.Source.
func (o *Observer) Metrics() observe.Metrics {
	type known struct {
		stats   node.Stats
		tallies observe.Tallies
		calls   int
		lost    int
	}
	k, ok := ask(o, time.After(askLimit), func() known {
		return known{o.node.Stats(), o.tallies.Clone(), o.view.Calls(), len(o.node.Deaths())}
	})
	m := observe.Metrics{
		Job: o.cfg.Who.Job, Version: o.cfg.Who.Version, Rank: o.cfg.Rank, Size: o.cfg.Size, Answers: ok,
		Tallies: k.tallies,
	}
	s := o.stats(k.stats)
	m.Peers = s.Peers
	add := func(name string, v uint64, help string) {
		m.Numbers = append(m.Numbers, observe.Metric{Name: name, Help: help, Value: float64(v)})
	}
	add("sent_bytes_total", s.SentBytes(), "Bytes handed to the network, our headers included.")
	add("multicast_sent_bytes_total", s.McastBytes, "Bytes sent by multicast.")
	add("multicast_sent_chunks_total", s.McastChunks, "Chunks sent by multicast.")
	add("multicast_refused_total", s.Refused, "Multicasts that the network refused to send.")
	add("multicast_queue_full_total", s.QueueFull, "Sends that the queue of our own interface dropped: repeated.")
	add("received_chunks_total", s.Placed, "Chunks received by multicast.")
	add("copied_chunks_total", s.Copied, "Chunks that were not received where they belong.")
	add("dropped_chunks_total", s.Dropped, "Datagrams dropped by our full receive queue, or by an injected fault.")
	add("repaired_bytes_total", s.RepairedBytes, "Bytes fetched because multicast did not deliver them.")
	add("inc_sent_bytes_total", s.IncBytes, "Bytes sent to aggregators.")
	add("inc_unsent_total", s.Unsent, "Contributions that did not leave: no aggregator, or no room in the socket.")
	add("inc_dropped_sums_total", s.SumsDropped, "Sums dropped by our full receive queue.")
	add("inc_sums_total", s.Sums, "Chunks that aggregators have summed for this rank.")
	add("inc_fetched_bytes_total", s.FetchedInBytes, "Inputs fetched because aggregators did not add them.")
	add("inc_fallbacks_total", s.Fallbacks, "Reductions by inc that did not rely on aggregators.")
	add("join_sent_bytes_total", o.cfg.JoinSent, "Bytes sent to meet the other ranks.")
	add("join_received_bytes_total", o.cfg.JoinReceived, "Bytes received to meet the other ranks.")
	add("rejected_connections_total", s.RejectedConns, "Connections that did not prove to be of a rank.")
	if !ok {
		return m // only the node knows the rest
	}
	add("repaired_chunks_total", s.Repaired, "Chunks fetched because multicast did not deliver them.")
	add("late_chunks_total", s.Late, "Chunks that came by multicast after they had been asked for.")
	add("duplicate_chunks_total", s.Duplicates, "Chunks that came twice.")
	add("corrupt_chunks_total", s.Corrupt, "Datagrams changed on the way or forged, found by checksums or seals: ignored.")
	add("foreign_chunks_total", s.Foreign+s.Stale,
		"Strangers' and old datagrams, and pieces that no operation expected: ignored.")
	add("operations_running", uint64(k.calls), "Operations under way.")
	add("lost_ranks", uint64(k.lost), "Ranks that were lost.")
	return m
}
