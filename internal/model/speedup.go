package model

import "fmt"

// The ranks of {Allgather, Reduce-Scatter} that the model is computed for.
const (
	MinSpeedupRanks = 2
	MaxSpeedupRanks = 1 << 20
)

// boundary is what one rank moves across the boundary of its node (Fig. 3), in
// units of N: what a rank sends in the Allgather and receives in the
// Reduce-Scatter.
type boundary struct{ send, recv int64 }

// The algorithms of Figure 3, for P ranks. In a ring everybody passes on all blocks
// but one. Multicast sends the own block once and receives the others'; in-network
// reduction is its mirror image: a rank sends up the others' blocks, adds its own
// locally and receives one result.
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

// Speedup is what a pair of algorithms makes of an Allgather and a Reduce-Scatter
// that run at the same time (Appendix B). The shares are parts of the rate of one
// direction of the NIC; equations 1 and 2 are those of ring+ring and mcast+inc.
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
	Send              int64 `json:"send_n"` // of both
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
		// Both end at the same time if each gets its part of the bytes as its
		// share of the rate, which is what equations 1 and 2 say. Then one
		// direction, at least, is never idle.
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
