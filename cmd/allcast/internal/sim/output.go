package sim

import (
	"fmt"
	"reflect"
	"strings"

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
	t.Note("%s on %s (%d ranks), simulated, seed %d, flow control %s.",
		r.Op, networkName(r.Subject), r.Nodes, r.Seed, r.Flow)
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
	fieldRows(t, resultFields(r.Op), results, applies)
	return t
}

// field is a row of a table: a JSON name, the value in a result, and what it means.
type field[R any] struct {
	name    string
	value   func(R) any
	meaning string
}

// fieldRows adds one row per field, with one column per result. Where a field does not apply to a result, the column
// has a "-" instead of a zero. A nil function means that all fields apply.
func fieldRows[R any](t *cli.Table, fields []field[R], results []R, applies func(name string, r R) bool) {
	for _, f := range fields {
		row := []any{f.name}
		for _, r := range results {
			v := f.value(r)
			if applies != nil && !applies(f.name, r) && reflect.ValueOf(v).IsZero() {
				v = "-"
			}
			row = append(row, v)
		}
		t.Row(append(row, f.meaning)...)
	}
}

// applies reports whether a field means something in a result. Without multicast there are no chains, for example.
func applies(name string, r *sim.Result) bool {
	aggregates := strings.Contains(r.Algo, "inc")
	switch strings.TrimSpace(name) {
	case "chains", "subgroups", "multicast_us":
		return r.Chains > 0
	case "barrier_us", "fetch_us", "handshake_us", "recovery_us", "cutoff_us", "dropped_chunks", "duplicate_chunks",
		"repaired_chunks", "late_chunks", "fetches_served_by_root":
		return r.Chains > 0 || aggregates
	case "transfer_us":
		return r.Algo != "mcast"
	case "background_bytes":
		return r.Background != ""
	case "max_crossings":
		return false // 0: the simulator did not count it, because ranks send sums, or several collectives run
	case "bytes", "chunk", "line_rate_share", "link_bytes_bound", "payload_link_bytes", "chunks_total":
		return r.Op != "barrier"
	}
	return true
}

func resultFields(op string) []field[*sim.Result] {
	return []field[*sim.Result]{
		{"algo", func(r *sim.Result) any { return r.Algo }, ""},
		{"bytes", func(r *sim.Result) any { return r.Bytes }, operations[op].bytes},
		{"chains", func(r *sim.Result) any { return r.Chains }, "as used"},
		{"subgroups", func(r *sim.Result) any { return r.Subgroups }, "as used"},
		{"chunk", func(r *sim.Result) any { return r.Chunk }, "payload of a datagram"},
		{"time_us", func(r *sim.Result) any { return r.TimeUS }, "first rank's start to last rank's completion"},
		{"bound_us", func(r *sim.Result) any { return r.BoundUS }, "busiest port or uplinks at full rate, plus latency"},
		{"line_rate_share", func(r *sim.Result) any { return r.LineRateShare }, "payload at a host's full rate over time_us"},
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
		{"background_bytes", func(r *sim.Result) any { return r.BackgroundBytes }, "of other jobs, on all link directions"},
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

// networkName describes the network of a run.
func networkName(s sim.Subject) string {
	name := s.Topology
	for _, x := range []struct {
		text  string
		value any
		shown bool
	}{
		{"%v:1 oversubscribed", s.Oversubscribe, s.Oversubscribe > 1},
		{"placement %v", s.Placement, s.Placement != ""},
		{"routing %v", s.Routing, s.Routing != ""},
		{"background traffic %v", s.Background, s.Background != ""},
	} {
		if x.shown {
			name += ", " + fmt.Sprintf(x.text, x.value)
		}
	}
	return name
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
