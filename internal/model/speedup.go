package model

import "fmt"

// The limits of the model's number of ranks.
const (
	MinSpeedupRanks = 2
	MaxSpeedupRanks = 1 << 20
)

// boundary is the data that one rank moves across the boundary of its node (Fig. 3), in units of
// N. N is the size of one rank's block.
type boundary struct{ send, recv int64 }

// The algorithms of Figure 3, for P ranks. In a ring, every rank forwards all blocks but one.
// With multicast, a rank sends its own block once and receives all others. In-network reduction
// is the mirror image: a rank sends all blocks but its own and receives one result.
func ringBoundary(p int64) boundary  { return boundary{p - 1, p - 1} }
func mcastBoundary(p int64) boundary { return boundary{1, p - 1} }
func incBoundary(p int64) boundary   { return boundary{p - 1, 1} }

var speedupPairs = []struct {
	algo   string
	ag, rs func(p int64) boundary
}{
	{"ring+ring", ringBoundary, ringBoundary},
	{"mcast+ring", mcastBoundary, ringBoundary},
	{"ring+inc", ringBoundary, incBoundary},
	{"mcast+inc", mcastBoundary, incBoundary},
}

// Speedup is the model of an Allgather and a Reduce-Scatter that run at the same time
// (Appendix B), for one pair of algorithms. The shares are parts of the rate of one direction
// of the NIC; equations 1 and 2 give them for ring+ring and mcast+inc.
type Speedup struct {
	Op    string `json:"op"`
	Algo  string `json:"algo"`
	Ranks int    `json:"ranks"`

	AllgatherSendShare     float64 `json:"ag_send_share"`
	AllgatherRecvShare     float64 `json:"ag_recv_share"`
	ReduceScatterSendShare float64 `json:"rs_send_share"`
	ReduceScatterRecvShare float64 `json:"rs_recv_share"`

	// Figure 3: bytes at the node boundary, in units of N.
	AllgatherSend     int64 `json:"ag_send_n"`
	AllgatherRecv     int64 `json:"ag_recv_n"`
	ReduceScatterSend int64 `json:"rs_send_n"`
	ReduceScatterRecv int64 `json:"rs_recv_n"`
	Send              int64 `json:"send_n"` // sum of both
	Recv              int64 `json:"recv_n"`

	Time    int64   `json:"time_n"`  // in units of N over the NIC's rate: the busier direction's bytes
	Speedup float64 `json:"speedup"` // over ring+ring
}

// Speedups computes the model for p ranks, for each pair of algorithms.
func Speedups(p int) ([]Speedup, error) {
	if p < MinSpeedupRanks || p > MaxSpeedupRanks {
		return nil, fmt.Errorf("%d ranks: want %d to %d", p, MinSpeedupRanks, MaxSpeedupRanks)
	}
	var all []Speedup
	for _, pair := range speedupPairs {
		ag, rs := pair.ag(int64(p)), pair.rs(int64(p))
		send, recv := ag.send+rs.send, ag.recv+rs.recv
		// If each operation gets a share of the rate in proportion to its bytes, both end at
		// the same time, and at least one direction is never idle (equations 1 and 2).
		s := Speedup{
			Op: "allgather+reduce-scatter", Algo: pair.algo, Ranks: p,
			AllgatherSendShare:     float64(ag.send) / float64(send),
			AllgatherRecvShare:     float64(ag.recv) / float64(recv),
			ReduceScatterSendShare: float64(rs.send) / float64(send),
			ReduceScatterRecvShare: float64(rs.recv) / float64(recv),
			AllgatherSend:          ag.send,
			AllgatherRecv:          ag.recv,
			ReduceScatterSend:      rs.send,
			ReduceScatterRecv:      rs.recv,
			Send:                   send,
			Recv:                   recv,
			Time:                   max(send, recv),
		}
		all = append(all, s)
	}
	for i := range all {
		all[i].Speedup = float64(all[0].Time) / float64(all[i].Time)
	}
	return all, nil
}
