package main

import (
	"fmt"

	"github.com/allcast/allcast/internal/sim"
)

// maxErrorLines keeps a failure on thousands of ranks readable; --json has all.
const maxErrorLines = 8

// simTable is a row a field, under its JSON name, and a column an algorithm.
func simTable(results []*sim.Result) *table {
	t := &table{left: true}
	if len(results) == 0 {
		return t
	}
	r := results[0]
	t.note("%s on %s (%d ranks), simulated, seed %d, flow control %s.", r.Op, r.Topology, r.Nodes, r.Seed, r.Flow)
	if r.Datapath != "" && r.Datapath != idealDatapath {
		t.note("Chunks are received by %s.", r.Datapath)
	}
	t.note("bytes is N of the paper: %s. Times are us of virtual time.", bytesMeaning(r.Op))
	for _, r := range results {
		if r.Auto != "" {
			t.note("auto chose %s.", r.Auto)
		}
	}
	for _, f := range simFields {
		row := []any{f.name}
		for _, r := range results {
			row = append(row, f.value(r))
		}
		if f.name == "bytes" {
			f.meaning = bytesMeaning(r.Op)
		}
		t.row(append(row, f.meaning)...)
	}
	return t
}

// bytesMeaning is what N is for an operation.
func bytesMeaning(op string) string {
	switch op {
	case "reduce-scatter":
		return "what one rank receives"
	case "allgather+reduce-scatter":
		return "what one rank sends in the Allgather and receives in the Reduce-Scatter"
	case "allreduce":
		return "the whole vector"
	}
	return "what one rank sends"
}

var simFields = []struct {
	name    string
	value   func(*sim.Result) any
	meaning string
}{
	{"algo", func(r *sim.Result) any { return r.Algo }, ""},
	{"bytes", func(r *sim.Result) any { return r.Bytes }, ""},
	{"chains", func(r *sim.Result) any { return r.Chains }, "as used"},
	{"subgroups", func(r *sim.Result) any { return r.Subgroups }, "as used"},
	{"chunk", func(r *sim.Result) any { return r.Chunk }, "payload of a datagram"},
	{"time_us", func(r *sim.Result) any { return r.TimeUS }, "first rank's start to last rank's completion"},
	{"bound_us", func(r *sim.Result) any { return r.BoundUS }, "the busiest host port at full rate, and one path's latency"},
	{"  barrier_us", func(r *sim.Result) any { return r.Phases.Barrier }, "phases of the rank that completed last"},
	{"  multicast_us", func(r *sim.Result) any { return r.Phases.Multicast }, ""},
	{"  fetch_us", func(r *sim.Result) any { return r.Phases.Fetch }, ""},
	{"  handshake_us", func(r *sim.Result) any { return r.Phases.Handshake }, ""},
	{"  transfer_us", func(r *sim.Result) any { return r.Phases.Transfer }, "of a point-to-point algorithm"},
	{"recovery_us", func(r *sim.Result) any { return r.RecoveryUS }, "after the last datagram came, or was lost"},
	{"cutoff_us", func(r *sim.Result) any { return r.CutoffUS }, "the longest first cutoff of a rank"},
	{"link_bytes", func(r *sim.Result) any { return r.LinkBytes }, "everything, on all link directions"},
	{"link_bytes_bound", func(r *sim.Result) any { return r.LinkBytesBound }, "payload, on a minimal tree"},
	{"payload_link_bytes", func(r *sim.Result) any { return r.PayloadLinkBytes }, "payload, as it went"},
	{"max_crossings", func(r *sim.Result) any { return r.MaxCrossings }, "of one link direction, by the most-repeated payload byte"},
	{"sent_bytes", func(r *sim.Result) any { return r.SentBytes }, "by the busiest rank, headers included"},
	{"chunks_total", func(r *sim.Result) any { return r.ChunksTotal }, "to be received, on all ranks"},
	{"dropped_chunks", func(r *sim.Result) any { return r.DroppedChunks }, ""},
	{"duplicate_chunks", func(r *sim.Result) any { return r.DuplicateChunks }, ""},
	{"repaired_chunks", func(r *sim.Result) any { return r.RepairedChunks }, "fetched from the left neighbour"},
	{"late_chunks", func(r *sim.Result) any { return r.LateChunks }, "arrived after they were asked for"},
	{"fetches_served_by_root", func(r *sim.Result) any { return r.RootFetches }, "chunks read from the rank that owns them"},
	{"verified", func(r *sim.Result) any { return yesNo(r.Verified) }, "every byte of every receive buffer"},
	{"wrong", func(r *sim.Result) any { return r.Wrong }, "ranks whose data was not what was sent"},
	{"events", func(r *sim.Result) any { return r.Events }, "simulated"},
	{"wall_ms", func(r *sim.Result) any { return r.WallMS }, "real time"},
}

// verdict tells people what went wrong and gives the worst status of all results.
func (a *app) verdict(results []*sim.Result) error {
	status := statusOK
	for _, r := range results {
		status = worse(status, a.verdictOf(r))
	}
	if status != statusOK {
		return statusError(status)
	}
	return nil
}

// verdictOf looks for wrong data first: it is the worst, also when other ranks
// have failed properly.
func (a *app) verdictOf(r *sim.Result) int {
	status := statusOK
	if len(r.Errors) > 0 {
		status = statusFailed
		a.message("%s (%s) failed on %d of %d ranks:", r.Op, r.Algo, len(r.Errors), r.Nodes)
		for i, e := range r.Errors {
			if i == maxErrorLines {
				a.message("  ... and %d more; --json lists all", len(r.Errors)-i)
				break
			}
			a.message("  %s", rankErrorLine(e))
		}
	}
	switch {
	case r.Violation != "":
		status = statusWrong
		a.message("%s (%s) broke a rule: %s", r.Op, r.Algo, r.Violation)
	case r.Wrong > 0 || len(r.Errors) == 0 && !r.Verified:
		status = statusWrong
		a.message("%s (%s) left wrong data on %d of %d ranks", r.Op, r.Algo, r.Wrong, r.Nodes)
	}
	return status
}

func rankErrorLine(e sim.RankError) string {
	line := fmt.Sprintf("rank %d in %s: %s", e.Rank, e.Phase, e.Reason)
	if e.Culprit >= 0 {
		line += fmt.Sprintf("; culprit rank %d", e.Culprit)
	}
	if e.Missing != "" {
		line += "; missing " + e.Missing
	}
	return line
}
