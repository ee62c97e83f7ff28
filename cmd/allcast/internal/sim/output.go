package sim

import (
	"fmt"

	"github.com/allcast/allcast/cmd/allcast/internal/cli"
	"github.com/allcast/allcast/internal/sim"
)

// maxErrorLines keeps a failure on thousands of ranks readable. --json lists all errors.
const maxErrorLines = 8

// resultTable has one row per field, under its JSON name, and one column per algorithm.
func resultTable(results []*sim.Result) *cli.Table {
	t := &cli.Table{Left: true}
	if len(results) == 0 {
		return t
	}
	r := results[0]
	t.Note("%s on %s (%d ranks), simulated, seed %d, flow control %s.", r.Op, r.Topology, r.Nodes, r.Seed, r.Flow)
	if r.Datapath != "" && r.Datapath != idealDatapath {
		t.Note("Chunks are received by %s.", r.Datapath)
	}
	t.Note("bytes is N of the paper: %s. Times are us of virtual time.", operations[r.Op].bytes)
	for _, r := range results {
		if r.Auto != "" {
			t.Note("auto chose %s.", r.Auto)
		}
		if r.Fallback != "" {
			t.Note("%s fetched sums point to point: %s.", r.Algo, r.Fallback)
		}
	}
	fieldRows(t, resultFields(r.Op), results)
	return t
}

// field is a row of a table: a JSON name, the value in a result, and what it means.
type field[R any] struct {
	name    string
	value   func(R) any
	meaning string
}

// fieldRows adds one row per field, with one column per result.
func fieldRows[R any](t *cli.Table, fields []field[R], results []R) {
	for _, f := range fields {
		row := []any{f.name}
		for _, r := range results {
			row = append(row, f.value(r))
		}
		t.Row(append(row, f.meaning)...)
	}
}

func resultFields(op string) []field[*sim.Result] {
	return []field[*sim.Result]{
		{"algo", func(r *sim.Result) any { return r.Algo }, ""},
		{"bytes", func(r *sim.Result) any { return r.Bytes }, operations[op].bytes},
		{"chains", func(r *sim.Result) any { return r.Chains }, "as used"},
		{"subgroups", func(r *sim.Result) any { return r.Subgroups }, "as used"},
		{"chunk", func(r *sim.Result) any { return r.Chunk }, "payload of a datagram"},
		{"time_us", func(r *sim.Result) any { return r.TimeUS }, "first rank's start to last rank's completion"},
		{"bound_us", func(r *sim.Result) any { return r.BoundUS }, "busiest host port at full rate, plus one latency"},
		{"  barrier_us", func(r *sim.Result) any { return r.Phases.Barrier }, "phases of the rank that completed last"},
		{"  multicast_us", func(r *sim.Result) any { return r.Phases.Multicast }, ""},
		{"  fetch_us", func(r *sim.Result) any { return r.Phases.Fetch }, ""},
		{"  handshake_us", func(r *sim.Result) any { return r.Phases.Handshake }, ""},
		{"  transfer_us", func(r *sim.Result) any { return r.Phases.Transfer }, "of point-to-point algorithms and of inc"},
		{"recovery_us", func(r *sim.Result) any { return r.RecoveryUS }, "after the last datagram arrived or was lost"},
		{"cutoff_us", func(r *sim.Result) any { return r.CutoffUS }, "the longest first cutoff of a rank"},
		{"link_bytes", func(r *sim.Result) any { return r.LinkBytes }, "everything, on all link directions"},
		{"link_bytes_bound", func(r *sim.Result) any { return r.LinkBytesBound }, "payload, on a minimal tree"},
		{"payload_link_bytes", func(r *sim.Result) any { return r.PayloadLinkBytes }, "payload, as sent"},
		{"max_crossings", func(r *sim.Result) any { return r.MaxCrossings }, "of one link direction, by the worst byte"},
		{"sent_bytes", func(r *sim.Result) any { return r.SentBytes }, "by the busiest rank, headers included"},
		{"chunks_total", func(r *sim.Result) any { return r.ChunksTotal }, "to be received, on all ranks"},
		{"dropped_chunks", func(r *sim.Result) any { return r.DroppedChunks }, ""},
		{"duplicate_chunks", func(r *sim.Result) any { return r.DuplicateChunks }, ""},
		{"repaired_chunks", func(r *sim.Result) any { return r.RepairedChunks }, "fetched from the left neighbour"},
		{"late_chunks", func(r *sim.Result) any { return r.LateChunks }, "arrived after they were requested"},
		{"fetches_served_by_root", func(r *sim.Result) any { return r.RootFetches }, "chunks read from their owner"},
		{"verified", func(r *sim.Result) any { return cli.YesNo(r.Verified) }, "every byte of every receive buffer"},
		{"wrong", func(r *sim.Result) any { return r.Wrong }, "ranks with wrong data"},
		{"events", func(r *sim.Result) any { return r.Events }, "simulated"},
		{"wall_ms", func(r *sim.Result) any { return r.WallMS }, "real time"},
	}
}

// worst returns the worst status of all results.
func worst[R any](results []R, status func(R) int) error {
	all := cli.StatusOK
	for _, r := range results {
		all = max(all, status(r))
	}
	if all != cli.StatusOK {
		return cli.StatusError(all)
	}
	return nil
}

// verdict reports what went wrong in a run and returns its status. Wrong data is worse than a failure, because it goes
// unnoticed.
func verdict(e *cli.Env, run sim.Subject, v sim.Verdict, failures []sim.RankError) int {
	status := cli.StatusOK
	if len(failures) > 0 {
		status = cli.StatusFailed
		e.Message("%s (%s) failed on %d of %d ranks:", run.Op, run.Algo, len(failures), run.Nodes)
		for _, failure := range failures[:min(len(failures), maxErrorLines)] {
			e.Message("  %s", rankErrorLine(failure))
		}
		if more := len(failures) - maxErrorLines; more > 0 {
			e.Message("  ... and %d more; --json lists all", more)
		}
	}
	switch {
	case v.Violation != "":
		status = cli.StatusWrong
		e.Message("%s (%s) broke a rule: %s", run.Op, run.Algo, v.Violation)
	case v.Wrong > 0 || len(failures) == 0 && !v.Verified:
		status = cli.StatusWrong
		e.Message("%s (%s) left wrong data on %d of %d ranks", run.Op, run.Algo, v.Wrong, run.Nodes)
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
